"""An initiator's session with a target: engines, one transport at a time, and what they count."""

from __future__ import annotations

from typing import Literal

import msgspec

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError
from mooncake_core.native import _native
from mooncake_core.te_bench.control import AskUsage, Control, Take, Taken, Used, Welcome
from mooncake_core.te_bench.report import PathShare
from mooncake_core.transfer import RemoteSegment, TransferEngine
from mooncake_core.transfer.statistics import PathStatistics

Transport = Literal["shm", "tcp", "auto"]


class Session:
    """An engine whose batches to the target take one transport. `with` closes it.

    Args:
        control: of the target; stays open.
        transport: that is asked for.
        config: of the engine, but for `same_host`.

    Raises:
        ConfigError: the target cannot be reached that way.
    """

    def __init__(self, control: Control, transport: Transport, config: TransferConfig) -> None:
        self.control = control
        self.config = config
        same_host: Literal["shm", "network"] = "network" if transport == "tcp" else "shm"
        self.engine = TransferEngine(msgspec.structs.replace(config, same_host=same_host))
        try:
            taken = self._try_out()
            self.transport: Literal["shm", "tcp"] = taken.transport
            self.why = f"{taken.transport}: {taken.reason}"
            """For people: what is measured, and why that."""
            self._refuse_another(transport, taken.reason)
        except BaseException:
            self.engine.close()
            raise

    def target_cpu_s(self) -> float:
        """Return what the target has used."""
        return self.control.ask(AskUsage(), Used).usage.cpu_s

    def close(self) -> None:
        """Close the engine; the control connection stays open."""
        self.engine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try_out(self) -> RemoteSegment:
        taken = self.control.ask(Take(size_bytes=4096), Taken)
        remote = self.engine.open_segment(self.control.welcome.engine, taken.segment_id)
        remote.close()
        return remote

    def _refuse_another(self, transport: Transport, reason: str) -> None:
        if transport in ("auto", self.transport):
            return
        raise ConfigError(
            f"--transport: {transport} cannot be measured: the target at "
            f"{self.control.welcome.engine} is reached over {self.transport}: {reason}"
        )


def is_same_host(welcome: Welcome) -> bool:
    """Return whether this process could share memory with the target."""
    return welcome.host_id == _native.host_id()


class PathCounter:
    """What the paths of an engine do from now on."""

    def __init__(self, engine: TransferEngine) -> None:
        self._engine = engine
        self._before = self._read()

    def shares(self) -> tuple[PathShare, ...]:
        """Return what each path that did something did since this was made."""
        rows = [_difference(now, self._before.get(key)) for key, now in self._read().items()]
        return tuple(row for row in rows if row.bytes or row.resent_slices or row.failures)

    def _read(self) -> dict[tuple[str, ...], PathStatistics]:
        return {
            (path.peer, path.transport, path.local, path.remote): path
            for path in self._engine.statistics()
        }


def name_of(path: PathStatistics) -> str:
    """Return what people know a path by."""
    if path.transport == "shm":
        return "shm"
    return f"tcp {path.local or 'any'} > {path.remote}"


def _difference(now: PathStatistics, before: PathStatistics | None) -> PathShare:
    def since(name: str) -> int:
        return int(getattr(now, name)) - (int(getattr(before, name)) if before else 0)

    return PathShare(
        path=name_of(now),
        bytes=since("read_bytes") + since("written_bytes"),
        resent_slices=since("resent_slices"),
        failures=since("failures"),
    )
