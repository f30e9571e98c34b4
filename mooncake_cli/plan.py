"""Which processes `mooncake up` runs, with which flags, and when a dead one starts again. Pure.

Every process takes a free port the first time; started again it takes the same address, so that the
others find it where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mooncake_core.config import UpConfig

Addresses = Mapping[str, str]
"""What a process listens on: name -> "host:port"."""

MAX_FAILED_STARTS = 5
FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
LASTING_S = 10.0
"""Whoever served for longer starts again as if it had never failed."""

STOP_ORDER = (("conductor",), ("prefill", "decode"), ("store",), ("master",))
"""Whoever uses others stops before them."""

HTTP_ADDRESS = {"master": "admin", "store": "transfer"}
"""The address shown for a role; "http" for the others."""

ANY = "127.0.0.1:0"


@dataclass(frozen=True)
class Part:
    """One process of the cluster."""

    name: str
    role: str


def start_order(config: UpConfig) -> tuple[tuple[Part, ...], ...]:
    """Return groups of processes; each group needs the addresses of those before it."""
    master, conductor = Part("master", "master"), Part("conductor", "conductor")
    numbers = {"store": config.stores, "prefill": config.prefills, "decode": config.decodes}
    others = tuple(
        Part(f"{role}-{index}", role) for role, count in numbers.items() for index in range(count)
    )
    if _takes_a_free_port(config.listen):
        return (master,), (conductor,), others
    return (master,), (conductor, *others)


def _takes_a_free_port(address: str) -> bool:
    return int(address.rpartition(":")[2]) == 0


def flags(part: Part, config: UpConfig, known: Mapping[str, Addresses]) -> list[str]:
    """Return the flags of a process.

    Args:
        part: the process.
        config: of the cluster.
        known: what each process listens on, by its name; at least of those that the start order
            has in earlier groups.
    """
    own = known.get(part.name, {})
    settings = dict(_settings(part, config, own, known))
    return [f"--{name}={value}" for name, value in settings.items()]


def _settings(
    part: Part, config: UpConfig, own: Addresses, known: Mapping[str, Addresses]
) -> Iterator[tuple[str, object]]:
    match part.role:
        case "master":
            yield "listen", own.get("rpc", ANY)
            yield "admin", own.get("admin", ANY)
        case "store":
            yield "master", known["master"]["rpc"]
            yield "capacity", config.store_capacity
            yield "name", part.name
            yield "domain", part.name  # copies are to outlive a process: all are on one machine
            yield "transfer-listen", own.get("transfer", ANY)
            yield "transfer-same-host", config.same_host
        case "conductor":
            yield "listen", own.get("http", config.listen)
            yield "slo-ttft-s", config.slo.ttft_s
            yield "slo-tbt-s", config.slo.tbt_s
            yield from _shared(config, known)
        case _:
            yield "listen", own.get("http", ANY)
            conductor = known.get("conductor", {}).get("http", config.listen)
            yield "conductor", reachable(conductor)
            yield "pool-tokens", config.pool_tokens
            yield "transfer-same-host", config.same_host
            if part.role == "decode":
                yield "max-batch", config.max_batch
                yield from _model(config)
            else:
                yield from _shared(config, known)


def _model(config: UpConfig) -> Iterator[tuple[str, object]]:
    for name in ("path", "name", "dtype", "device", "backend"):
        yield f"model-{name}", getattr(config.model, name)


def _shared(config: UpConfig, known: Mapping[str, Addresses]) -> Iterator[tuple[str, object]]:
    yield from _model(config)
    yield "pool-master", known["master"]["rpc"]
    yield "pool-replicas", config.replicas


def reachable(address: str) -> str:
    """Return where this host reaches a listening address: loopback for "any address"."""
    host, _, port = address.rpartition(":")
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"


class Starts:
    """How often one process has ended, and so when it starts again."""

    def __init__(self) -> None:
        self.failed = 0
        """Starts in a row that did not get as far as serving."""
        self._short_lives = 0

    def ended(self, served_s: float | None) -> float | None:
        """Return the seconds until the next start, or None: give up.

        Args:
            served_s: how long it served; None if it never did.
        """
        self.failed = 0 if served_s is not None else self.failed + 1
        self._short_lives = 0 if (served_s or 0) >= LASTING_S else self._short_lives + 1
        if self.failed >= MAX_FAILED_STARTS:
            return None
        doublings = max(self._short_lives - 1, 0)
        return min(FIRST_DELAY_S * (1 << min(doublings, 16)), LONGEST_DELAY_S)
