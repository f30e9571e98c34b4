"""A whole store on one seed: the real master core, and all that can happen to it.

`world` draws what happens, `clients` and `nodes` are who it happens to, `model` is a dumb twin of
the master that says what each answer must be, `memory` who may touch which bytes, `checks` what
must hold after every step. A seed is replayed with `python -m tests.store.sim SEED`.
"""
