"""Eviction policies against ordered dictionaries, every answer compared after every step."""

from __future__ import annotations

import array
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_core.native import _native, native_errors

Class = _native.EvictionClass
ORDER = [Class.kExtra, Class.kLeaf, Class.kInterior, Class.kSoftPinned]
HELD = Class.kHeld
LEVELS = 16


class Lru:
    """A dictionary a class, in order of use."""

    def __init__(self):
        self.of = {one: OrderedDict() for one in [*ORDER, HELD]}
        self.class_of = {}

    def insert(self, ident, one):
        self.class_of[ident] = one
        self.of[one][ident] = None

    def touch(self, ident):
        self.of[self.class_of[ident]].move_to_end(ident)

    def set_class(self, ident, one, goes_next):
        if self.class_of[ident] == one and not goes_next:
            return
        self.remove(ident)
        self.insert(ident, one)
        self.of[one].move_to_end(ident, last=not goes_next)

    def remove(self, ident):
        del self.of[self.class_of.pop(ident)][ident]

    def order(self, asked):
        return [ident for one in ORDER for ident in self.of[one]]


class Fifo(Lru):
    """Held ones stay where they are; those whose turn came are sent to the end when let go."""

    def __init__(self):
        super().__init__()
        self.place = {}

    def insert(self, ident, one):
        self.class_of[ident] = one
        if one != HELD:
            self.of[one][ident] = None
            self.place[ident] = one

    def touch(self, ident):
        pass

    def set_class(self, ident, one, goes_next):
        self.class_of[ident] = one
        if (one == HELD or self.place.get(ident) == one) and not goes_next:
            return
        self.leave(ident)
        self.insert(ident, one)
        if one != HELD:
            self.of[one].move_to_end(ident, last=not goes_next)

    def leave(self, ident):
        if ident in self.place:
            del self.of[self.place.pop(ident)][ident]

    def remove(self, ident):
        self.leave(ident)
        del self.class_of[ident]

    def order(self, asked):
        """Whoever asks for the order passes the held ones by."""
        if asked:
            for ident in [one for one in self.place if self.class_of[one] == HELD]:
                self.leave(ident)
        return [one for kind in ORDER for one in self.of[kind] if self.class_of[one] != HELD]


class Lfu:
    """Each id with its frequency and a number for its place among equals."""

    def __init__(self):
        self.class_of, self.frequency, self.place = {}, {}, {}
        self.uses, self.first, self.last = 0, 0, 0

    def insert(self, ident, one):
        self.class_of[ident], self.frequency[ident] = one, 0
        self.to_back(ident)

    def to_back(self, ident):
        self.last += 1
        self.place[ident] = (0, self.last)

    def touch(self, ident):
        self.frequency[ident] = min(self.frequency[ident] + 1, LEVELS - 1)
        self.to_back(ident)
        self.uses += 1
        if self.uses >= max(len(self.class_of), 64):
            self.age()

    def age(self):
        """Those at 0 stay there, before those that come down to it."""
        self.uses = 0
        for ident, frequency in self.frequency.items():
            if frequency == 0:
                self.place[ident] = (self.place[ident][0] - 1, self.place[ident][1])
            else:
                self.frequency[ident] -= 1

    def set_class(self, ident, one, goes_next):
        if self.class_of[ident] == one and not goes_next:
            return
        self.class_of[ident] = one
        self.to_back(ident)
        if goes_next:
            self.first -= 1
            self.place[ident] = (-(10**9), self.first)

    def remove(self, ident):
        del self.class_of[ident], self.frequency[ident], self.place[ident]

    def order(self, asked):
        return sorted(
            (ident for ident, one in self.class_of.items() if one != HELD),
            key=lambda i: (ORDER.index(self.class_of[i]), self.frequency[i], self.place[i]),
        )


MODELS = {"lru": Lru, "fifo": Fifo, "lfu": Lfu}


def walk(real):
    found, ident = [], real.victim()
    while ident is not None:
        found.append(ident)
        ident = real.next(ident)
    return found


class Both:
    """The policy and its model, told the same."""

    def __init__(self, policy):
        self.real, self.model = _native.Eviction(policy), MODELS[policy]()

    def step(self, action, ident, one, goes_next):
        is_there = ident in self.model.class_of
        if not is_there:
            self.real.insert(ident, one, depth=ident)
            self.model.insert(ident, one)
        elif action == 0:
            self.real.remove(ident)
            self.model.remove(ident)
        elif action == 1:
            self.real.set_class(ident, one, goes_next=goes_next)
            self.model.set_class(ident, one, goes_next)
        else:
            self.real.touch(ident)
            self.model.touch(ident)

    def compare(self):
        expected = self.model.order(asked=True)
        assert walk(self.real) == expected
        classes = self.model.class_of
        assert len(self.real) == len(classes)
        assert all(self.real.class_of(ident) == one for ident, one in classes.items())
        for one in [*ORDER, HELD]:
            assert self.real.count_of(one) == list(classes.values()).count(one)
        for limit in ORDER:
            allowed = [i for i in expected if ORDER.index(classes[i]) <= ORDER.index(limit)]
            assert self.real.victim(limit) == (allowed[0] if allowed else None)


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), st.sampled_from([*ORDER, HELD]), st.booleans()),
    max_size=120,
)


@pytest.mark.parametrize("policy", MODELS)
@given(steps=STEPS, look_every=st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_victims_go_in_the_order_of_the_model(policy, steps, look_every):
    both = Both(policy)
    for at, step in enumerate(steps):
        both.step(*step)
        if at % look_every == 0:
            both.compare()
    both.compare()
    both.real.check()


def filled(policy, count):
    real = _native.Eviction(policy)
    for ident in range(count):
        real.insert(ident, Class.kLeaf)
    return real


def drain(real):
    gone = []
    while (victim := real.victim()) is not None:
        gone.append(victim)
        real.remove(victim)
    return gone


def test_a_lower_class_goes_first_and_held_ones_never():
    real = _native.Eviction("lru")
    for ident, one in enumerate([HELD, Class.kSoftPinned, Class.kInterior, Class.kLeaf]):
        real.insert(ident, one)
    real.insert(4, Class.kExtra)
    assert (walk(real), real.victim(Class.kLeaf)) == ([4, 3, 2, 1], 4)
    assert drain(real) == [4, 3, 2, 1]
    assert (real.victim(HELD), len(real)) == (None, 1)


def test_of_a_chain_the_end_goes_first_then_its_parent():
    real = _native.Eviction("lru")
    for ident in range(4):
        real.insert(ident, Class.kLeaf)
        if ident:
            real.set_class(ident - 1, Class.kInterior)
    real.insert(9, Class.kLeaf)
    gone = []
    for parent in (2, 1, 0):
        gone.append(real.victim())
        real.remove(gone[-1])
        real.set_class(parent, Class.kLeaf, goes_next=True)
    assert gone == [3, 2, 1]
    assert drain(real) == [0, 9]


def test_lru_spares_what_was_held():
    real = filled("lru", 3)
    real.set_class(0, HELD)
    real.set_class(0, Class.kLeaf)
    assert drain(real) == [1, 2, 0]


def test_fifo_keeps_the_place_of_what_was_held():
    real = filled("fifo", 3)
    real.set_class(0, HELD)
    real.set_class(0, Class.kLeaf)
    assert drain(real) == [0, 1, 2]


def test_fifo_gives_what_was_held_at_its_turn_another_lap():
    real = filled("fifo", 3)
    real.set_class(0, HELD)
    assert real.victim() == 1
    real.set_class(0, Class.kLeaf)
    assert drain(real) == [1, 2, 0]


def test_lfu_forgets_what_was_popular_long_ago():
    real = filled("lfu", 100)
    for _ in range(20):
        real.touch(0)
    assert walk(real)[-1] == 0
    for _ in range(20):
        for ident in range(1, 100):
            real.touch(ident)
    assert walk(real)[0] == 0


def test_ids_in_several_chunks_of_state_are_in_one_order():
    real = filled("lru", 10_000)
    for ident in range(0, 10_000, 2):
        real.touch(ident)
    real.check()
    assert drain(real) == [*range(1, 10_000, 2), *range(0, 10_000, 2)]


def test_an_unknown_policy_names_the_known_ones():
    known = "'lrru' is not known; there are: lru, fifo, lfu"
    with pytest.raises(ValueError, match=known), native_errors:
        _native.Eviction("lrru")
    assert _native.eviction_names() == list(MODELS)


def test_ids_that_are_not_there_are_refused():
    real = filled("lru", 1)
    for call in (real.touch, real.remove, real.next, real.class_of):
        with pytest.raises(ValueError, match="id 7 was not inserted"), native_errors:
            call(7)
    for ident in (0, 1 << 31):
        with pytest.raises(ValueError, match="cannot be inserted"), native_errors:
            real.insert(ident, Class.kLeaf)


class Cache:
    """What a cache of one class does, in a few lines of Python."""

    def __init__(self, policy, capacity):
        self.model, self.capacity = MODELS[policy](), capacity

    def hits(self, keys):
        hits = 0
        for key in keys:
            if key in self.model.class_of:
                hits += 1
                self.model.touch(key)
                continue
            if len(self.model.class_of) == self.capacity:
                self.model.remove(self.model.order(asked=True)[0])
            self.model.insert(key, Class.kLeaf)
        return hits


@pytest.mark.parametrize("policy", MODELS)
@given(keys=st.lists(st.integers(0, 12), max_size=300), capacity=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_a_replayed_trace_hits_as_often_as_the_models_cache(policy, keys, capacity):
    hits = _native.replay(array.array("Q", keys), capacity, policy)
    assert hits == Cache(policy, capacity).hits(keys)


@pytest.mark.parametrize("policy", MODELS)
def test_a_loop_that_fits_is_missed_once(policy):
    keys = array.array("Q", [key << 40 for key in range(1000)]) * 1000
    assert _native.replay(keys, 1000, policy) == len(keys) - 1000


def test_replay_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="capacity_blocks"), native_errors:
        _native.replay(array.array("Q"), 0, "lru")
    with pytest.raises(TypeError):
        _native.replay(array.array("I", [1]), 1, "lru")
