"""Odd legal settings, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ACTIONS = (
    "put",
    "put_batch",
    "end",
    "abort",
    "lookup",
    "release",
    "remove",
    "corrupt",
    "pin",
    "crash",
    "goodbye",
    "stall",
    "late",
    "rename",
    "kill_node",
    "goodbye_node",
    "disconnect_node",
    "silence_node",
    "replace_node",
    "add_node",
    "stop_master",
    "task",
    "cancel",
    "wait",
)
# What happens often; all else is rare.
OFTEN = {"put": 40, "end": 35, "lookup": 25, "release": 12, "put_batch": 4, "wait": 8, "abort": 3}
OFTEN["task"] = 2
RARE = 0.5


@dataclass(frozen=True)
class Settings:
    """Of one world."""

    epoch: int
    client_ttl_s: float
    lease_s: float
    eviction: str
    admission: str
    placement: str
    stripe_bytes: int
    capacity: int
    nodes: int
    domains: int
    clients: int
    keys: int
    largest: int
    loss: float  # of a message, or of its answer
    fetch: float  # how likely a node has carried out an order at a heartbeat
    step_evictions: int
    repairs: bool
    hot_gets_per_s: float
    hot_replicas: int
    heat_half_life_s: float
    fence: float  # how likely a node completes a fence at a heartbeat
    weights: dict = field(default_factory=dict)

    @property
    def core(self):
        """What the master is told."""
        names = ("epoch", "client_ttl_s", "lease_s", "eviction", "admission", "placement")
        names += ("stripe_bytes", "step_evictions", "repairs")
        names += ("hot_gets_per_s", "hot_replicas", "heat_half_life_s")
        return {name: getattr(self, name) for name in names}


def draw(rng: random.Random) -> Settings:
    """Draw a world's settings: mostly ordinary ones, and each odd one often enough."""
    nodes = rng.choice([1, 2, 3, 3, 4, 6])
    largest = rng.choice([1000, 20_000, 200_000, 200_000, 2_000_000])
    ttl_s = rng.choice([0.2, 3.0, 3.0, 3.0, 1e6])
    weights = {name: OFTEN.get(name, RARE) * rng.choice([0, 0.3, 1, 1, 3]) for name in ACTIONS}
    for name in ("put", "end", "lookup", "wait"):
        weights[name] = weights[name] or OFTEN[name]
    return Settings(
        epoch=77,
        client_ttl_s=ttl_s,
        lease_s=rng.choice([0.01, 1.0, 5.0, 5.0, 1e6]),
        eviction=rng.choice(["lru", "lru", "fifo", "lfu"]),
        admission=rng.choice(["all"] * 4 + ["second-put"]),
        placement=rng.choice(["free-ratio-first"] * 2 + ["random", "round-robin", "local-first"]),
        stripe_bytes=rng.choice([1, 256 * 1024, 256 * 1024, 1 << 20, 64 << 20]),
        capacity=rng.choice([64, 4096, largest, 2 * largest, 5 * largest, 20 * largest]),
        nodes=nodes,
        domains=rng.randint(1, nodes),
        clients=rng.choice([1, 3, 5]),
        keys=rng.choice([4, 30, 60]),
        largest=largest,
        loss=rng.choice([0, 0.02, 0.1]),
        fetch=rng.choice([1.0, 0.7, 0.2]),
        step_evictions=rng.choice([1, 2, 2000]),
        repairs=rng.random() < 0.8,
        hot_gets_per_s=rng.choice([0, 0, 0, 0.1, 1]),
        hot_replicas=rng.choice([1, 2, 16]),
        heat_half_life_s=rng.choice([0.5, 10.0]),
        fence=rng.choice([1.0, 0.7, 0.2]),
        weights=weights,
    )
