"""Runs worlds, one or many. Processes of their own: a master that breaks its invariants ends."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.store.sim.world import World

CHUNK = 25


@dataclass
class Worlds:
    """What came of many: how often what happened, and what failed, by seed."""

    counts: Counter = field(default_factory=Counter)
    failures: dict = field(default_factory=dict)

    def add(self, other):
        self.counts.update(other.counts)
        self.failures.update(other.failures)


def replay_command(seed, steps):
    return f"python -m tests.store.sim {seed} --steps {steps}"


def run_one(seed, steps):
    """Run one world and return its counts."""
    world = World(seed)
    world.run(steps)
    return world.counts


def run_in_line(seeds, steps):
    """Run worlds one after another, and print a line of JSON after each."""
    for seed in seeds:
        try:
            line = {"seed": seed, "counts": run_one(seed, steps)}
        except Exception:
            line = {"seed": seed, "problem": traceback.format_exc(limit=-3)}
        print(json.dumps(line), flush=True)


def run_many(seeds, steps, processes, on_chunk=lambda worlds: None):
    """Run worlds in so many processes and return what came of them, in the order of the seeds."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    total = Worlds()
    with ThreadPoolExecutor(processes) as pool:
        for worlds in pool.map(lambda chunk: run_chunk(chunk, steps), chunks):
            total.add(worlds)
            on_chunk(total)
    return total


def run_chunk(seeds, steps):
    """Run worlds in a process, and in another from where one has ended it."""
    worlds = Worlds()
    while seeds:
        command = [sys.executable, "-m", "tests.store.sim", "--steps", str(steps)]
        command += ["--in-line", ",".join(map(str, seeds))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for line in lines:
            worlds.counts.update(line.get("counts", {}))
            if "problem" in line:
                add_failure(worlds, line["seed"], steps, line["problem"])
        if len(lines) < len(seeds):
            add_failure(worlds, seeds[len(lines)], steps, done.stderr)
        seeds = seeds[len(lines) + 1 :]
    return worlds


def add_failure(worlds, seed, steps, problem):
    worlds.failures[seed] = f"{problem.strip()}\nreplay: {replay_command(seed, steps)}\n"


def shortest(seed, steps):
    """Return with how few steps the seed fails, or None if it does not."""
    if not run_chunk(range(seed, seed + 1), steps).failures:
        return None
    low, high = 0, steps  # it fails at high, and is not known to at low
    while low + 1 < high:
        middle = (low + high) // 2
        if run_chunk(range(seed, seed + 1), middle).failures:
            high = middle
        else:
            low = middle
    return high
