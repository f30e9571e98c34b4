"""Replay one seed, or run many: python -m tests.store.sim SEED | --seeds 0..10000."""

from __future__ import annotations

import argparse
import sys
import time

from tests.store.sim.runner import run_in_line, run_many, run_one, shortest

STEPS = 300


def seeds_of(words):
    first, last = map(int, words.split(".."))
    return range(first, last)


def each_of(words):
    return list(map(int, words.split(",")))


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.store.sim", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="replay this one")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=seeds_of, help="FIRST..LAST, without the last")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shrink", action="store_true", help="to the fewest steps that fail")
    parser.add_argument("--in-line", type=each_of, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_line is not None:
        return run_in_line(options.in_line, options.steps)
    if options.seeds is not None:
        return report(options.seeds, options.steps, options.processes)
    if options.seed is None:
        parser.error("a seed, or --seeds")
    if options.shrink:
        options.steps = shortest(options.seed, options.steps) or options.steps
        print(f"--steps {options.steps}")
    return print_counts(run_one(options.seed, options.steps))


def report(seeds, steps, processes):
    began_s, told = time.monotonic(), set()

    def on_chunk(worlds):
        for seed in worlds.failures.keys() - told:
            told.add(seed)
            print(worlds.failures[seed], flush=True)

    worlds = run_many(seeds, steps, processes, on_chunk)
    print_counts(worlds.counts)
    seconds = time.monotonic() - began_s
    print(f"{len(seeds)} seeds of {steps} steps, {len(worlds.failures)} failed, {seconds:.0f} s")
    sys.exit(bool(worlds.failures))


def print_counts(counts):
    for name, count in sorted(counts.items()):
        print(f"{count:10} {name}")


if __name__ == "__main__":
    main()
