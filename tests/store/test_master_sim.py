"""A few hundred worlds: each on one seed, with every kind of trouble, against a dumb twin."""

from __future__ import annotations

import pytest

from tests.store.sim.runner import run_many
from tests.store.sim.world import World

SEEDS, STEPS = 300, 300
FOUND = (618, 682, 1841, 1918, 3013, 4230, 4379, 6431, 8058, 8186, 8803, 9447)
"""Worlds in which something was wrong once, with the master or with what the twin knew of it."""

# What must have happened in all worlds together, so often at least: else nothing was tested.
ENOUGH = {
    "commits": 2000,
    "hits": 2000,
    "evictions": 200,
    "aborts": 100,
    "answers lost": 500,
    "late deliveries": 500,
    "clients crashed": 100,
    "clients stalled": 100,
    "sessions expired": 100,
    "fenced hellos": 50,
    "extents quarantined": 500,
    "fences": 300,
    "leases renewed": 500,
    "leases expired": 100,
    "pins": 50,
    "pins orphaned": 20,
    "nodes lost": 300,
    "nodes replaced": 50,
    "nodes that came back": 50,
    "nodes refused": 50,
    "names taken": 50,
    "lost pins ended": 10,
    "disconnects": 50,
    "master stood still": 100,
    "groups died": 100,
    "group members died": 50,
    "objects replaced": 100,
    "removals of what is read": 20,
    "corrupt copies": 20,
    "soft pins ended": 50,
    "striped puts": 50,
    "puts of more than a copy": 300,
    "put start: out of space": 300,
    "put start: too few nodes": 100,
    "put start: not admitted": 100,
    "put start: exists": 500,
    "put start: busy": 300,
    "put start: invalid": 20,
    "put end: superseded": 20,
    "put end: unknown": 50,
    "put start: making room": 200,
    "copies made": 200,
    "copies moved or dropped": 20,
    "corrupt sources": 15,
    "fetches failed": 50,
    "evictions for copies": 10,
    "nodes doubted": 300,
    "puts on doubted nodes": 100,
    "tasks": 30,
    "tasks of kind 1: done": 3,
    "tasks of kind 2: done": 5,
    "tasks of kind 2: failed": 3,
    "tasks cancelled": 10,
}


@pytest.fixture(scope="module")
def worlds():
    return run_many([*range(SEEDS), *FOUND], STEPS, processes=2)


def test_a_store_keeps_its_promises_on_every_seed(worlds):
    assert not worlds.failures, "\n".join(worlds.failures.values())


def test_every_kind_of_trouble_was_met_often_enough(worlds):
    rare = {name: worlds.counts[name] for name in ENOUGH if worlds.counts[name] < ENOUGH[name]}
    assert not rare


def test_a_seed_tells_the_same_story_twice():
    stories = []
    for _ in range(2):
        world = World(5)
        world.run(50)
        stories.append((world.counts, world.core.stats(world.now_s)))
    assert stories[0] == stories[1]
