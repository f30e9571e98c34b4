"""Fault mode: break something in the middle of a run, and see who notices, when, and what is lost.

Each call carries bytes of its own, and all of them are looked at: a wrong byte ends the run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from mooncake_core.errors import ConfigError, TransferError, UsageError
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.cuts import Silence, cut
from mooncake_core.te_bench.loopback import LoopbackTarget
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import Case, Layout
from mooncake_core.te_bench.report import FaultResult
from mooncake_core.te_bench.row import Row
from mooncake_core.te_bench.session import Session, name_of
from mooncake_core.te_bench.steady import Steady
from mooncake_core.transfer.statistics import PathStatistics

PATIENCE_S = 15.0
"""What has not happened after it is reported as never."""
SILENCE_S = 2.0
TRIES = 10
"""A cut that fell between two calls has tested nothing, and is made again."""
_SETTLE_CALLS = 5
_LOOK_S = 0.0005
_LOOPBACK_PATHS = ("127.0.0.2", "127.0.0.3")


def for_faults(config: BenchConfig, *, is_loopback: bool) -> BenchConfig:
    """Return the config with what its fault or soak needs and was left open.

    Raises:
        UsageError: the fault cannot be had that way.
    """
    if not config.fault:
        # Memory that is shared has nothing to cut.
        is_open = config.soak > 0 and config.transport == "auto"
        return msgspec.structs.replace(config, transport="tcp") if is_open else config
    if config.fault == "peer":
        if not is_loopback:
            raise UsageError("--fault: peer kills the target, so it must be --loopback's")
        return config
    if config.transport not in ("auto", "tcp"):
        raise UsageError(f"--fault: a {config.fault} is of tcp, not {config.transport}")
    config = msgspec.structs.replace(config, transport="tcp")
    if config.fault == "path" and is_loopback and not config.transfer.addresses:
        transfer = msgspec.structs.replace(config.transfer, addresses=_LOOPBACK_PATHS)
        config = msgspec.structs.replace(config, transfer=transfer)
    return config


def break_lane(session: Session, case: Case) -> FaultResult:
    """End the connections of the busiest path in the middle of a call.

    Where they are cut between two calls after all, it is tried again, at most `TRIES` times.
    """
    for tries in range(1, TRIES + 1):
        found = msgspec.structs.replace(_break_lane(session, case), tries=tries)
        if found.is_noticed:
            break
    return found


def _break_lane(session: Session, case: Case) -> FaultResult:
    with _calls(session, case) as (steady, _):
        before = _Before(session, steady)
        _strike(steady)
        path = _busiest(session)
        cut_s = time.perf_counter()
        count = cut(path)
        moved = _bytes(_same(session, path))

        def is_used_again() -> bool:
            """The first call may have ended over what was cut."""
            return before.calls() >= 2 and _bytes(_same(session, path)) > moved

        detected_s = _until(
            lambda: before.failures() > 0 or is_used_again() or steady.has_ended, since_s=cut_s
        )
        if before.failures() == 0 and not steady.has_ended:
            detected_s = None
        used_again_s = _until(lambda: is_used_again() or steady.has_ended, since_s=cut_s)
        _settle(steady)
        what = f"{count} connection{'s' * (count != 1)} of {name_of(path)}"
        return before.result("lane", what, detected_s, used_again_s)


def break_path(session: Session, case: Case) -> FaultResult:
    """Let nothing be heard on the busiest path for some seconds, from the middle of a call on.

    Raises:
        ConfigError: there is no other path.
    """
    with _calls(session, case) as (steady, _):
        if len(_tcp_paths(session)) < 2:
            raise ConfigError(
                "--fault: there is one path only; name further addresses of both hosts "
                "with --transfer-addresses"
            )
        before = _Before(session, steady)
        _strike(steady)
        path = _busiest(session)
        with Silence(path):
            detected_s = _until(lambda: before.failures() > 0 or steady.has_ended)
            _until(lambda: steady.has_ended, SILENCE_S)
        moved = _bytes(_same(session, path))
        used_again_s = _until(lambda: _bytes(_same(session, path)) > moved or steady.has_ended)
        _settle(steady)
        what = f"{name_of(path)}, silent for {SILENCE_S:g} s"
        return before.result("path", what, detected_s, used_again_s)


def break_peer(session: Session, case: Case, target: LoopbackTarget) -> FaultResult:
    """Kill the target in the middle of a call, then start another one and use it."""
    with _calls(session, case) as (steady, row):
        before = _Before(session, steady)
        _strike(steady)
        killed_s = time.perf_counter()
        target.kill()
        _until(lambda: steady.has_ended)
        error = _error_of_a_call(steady, row)
        detected_s = None if error is None else time.perf_counter() - killed_s
        if steady.failed_at_s:
            detected_s = steady.failed_at_s - killed_s
    return before.result("peer", f"process {target.pid}", detected_s, _again(session, case), error)


class _Before:
    """How things stood before a fault, and what has changed since."""

    def __init__(self, session: Session, steady: Steady) -> None:
        self._session = session
        self._steady = steady
        self._calls = len(steady.latencies_s)
        self._failures = self._sum("failures") + self._sum("quarantines")
        self._resent = self._sum("resent_slices")

    def calls(self) -> int:
        """Return how many calls have ended well since."""
        return len(self._steady.latencies_s) - self._calls

    def failures(self) -> int:
        """Return how many connections and paths the engine has given up since."""
        return self._sum("failures") + self._sum("quarantines") - self._failures

    def result(
        self,
        fault: str,
        what: str,
        detected_s: float | None,
        used_again_s: float | None,
        error: BaseException | None = None,
    ) -> FaultResult:
        """Return what came of it; a wrong byte is raised."""
        error = error or self._steady.error
        if error is not None and not isinstance(error, TransferError):
            raise error
        return FaultResult(
            fault=fault,
            what=what,
            detected_s=detected_s,
            error="" if error is None else f"{type(error).__name__}: {error}",
            longest_call_s=max(self._steady.latencies_s[self._calls :], default=0.0),
            used_again_s=None if self._steady.error and fault != "peer" else used_again_s,
            resent_slices=self._sum("resent_slices") - self._resent,
            calls=len(self._steady.latencies_s),
        )

    def _sum(self, name: str) -> int:
        return sum(getattr(path, name) for path in self._session.engine.statistics())


@contextmanager
def _calls(session: Session, case: Case) -> Iterator[tuple[Steady, Row]]:
    """Yield a thread that calls, and has done so often enough to be at speed."""
    layout = Layout(block_bytes=case.block_bytes, batch=case.batch, slots=1)
    with Row(session.engine, session.control, case, layout) as row:
        steady = Steady(row, session.control)
        try:
            _settle(steady)
            yield steady, row
        finally:
            steady.stop()


def _settle(steady: Steady) -> None:
    wanted = len(steady.latencies_s) + _SETTLE_CALLS
    _until(lambda: len(steady.latencies_s) >= wanted or steady.has_ended)


def _strike(steady: Steady) -> None:
    """Return in the middle of a call."""
    steady.wait_for_call()
    time.sleep(statistics.median(steady.latencies_s) * 0.4)


def _until(
    condition: Callable[[], bool], limit_s: float = PATIENCE_S, *, since_s: float | None = None
) -> float | None:
    """Wait for a condition, and return how long it took; None: longer than the limit.

    Args:
        condition: is looked at again and again.
        limit_s: from `since_s` on.
        since_s: on time.perf_counter(); None: from now.
    """
    start_s = time.perf_counter() if since_s is None else since_s
    while time.perf_counter() - start_s < limit_s:
        if condition():
            return time.perf_counter() - start_s
        time.sleep(_LOOK_S)
    return None


def _error_of_a_call(steady: Steady, row: Row) -> BaseException | None:
    """Return what a call to a dead target raises: that of the thread, or one more."""
    if steady.failed_at_s:
        return steady.error
    try:
        row.strands[0].calls[0]()
    except TransferError as error:
        return error
    return None


def _again(session: Session, case: Case) -> float | None:
    """Start another target and return how long a first verified call to it takes."""
    with LoopbackTarget(session.config) as target:
        started_s = time.perf_counter()
        with (
            Control(target.address) as control,
            Session(control, case.transport, session.config) as other,
            _calls(other, case) as (steady, _),
        ):
            if not steady.latencies_s:
                return None
            return time.perf_counter() - started_s


def _tcp_paths(session: Session) -> list[PathStatistics]:
    """Return the paths to the target that are not gone."""
    peer = session.control.welcome.engine
    paths = session.engine.statistics()
    return [
        path
        for path in paths
        if path.transport == "tcp" and path.peer == peer and path.state != "gone"
    ]


def _busiest(session: Session) -> PathStatistics:
    return max(_tcp_paths(session), key=_bytes)


def _same(session: Session, path: PathStatistics) -> PathStatistics:
    ends = (path.peer, path.local, path.remote)
    paths = session.engine.statistics()
    return next(each for each in paths if (each.peer, each.local, each.remote) == ends)


def _bytes(path: PathStatistics) -> int:
    return path.read_bytes + path.written_bytes
