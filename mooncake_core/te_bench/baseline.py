"""What this host does without an engine: memcpy for shm, plain sockets to the target for tcp."""

from __future__ import annotations

from typing import Literal, Protocol

from mooncake_core.native import _native, native_errors
from mooncake_core.te_bench.plan import Case, Layout

STREAMS = (1, 2, 4, 8)
MAX_SPAN_BYTES = 1 << 30
_OP = {"read": _native.Op.kRead, "write": _native.Op.kWrite}


class Baseline(Protocol):
    """Measures one case over and over."""

    what: str
    """For people: what it is that is measured."""
    streams: int
    """Threads or connections."""

    def rate(self, seconds: float) -> float:
        """Return bytes a second; takes about `seconds`."""


class Memcpy:
    """As many threads as the case has, copying its blocks one by one."""

    def __init__(self, case: Case, layout: Layout) -> None:
        self._case = case
        self.streams = case.threads
        self._span = _span(case.block_bytes, layout.size_bytes)
        self.what = "memcpy with as many threads"

    def rate(self, seconds: float) -> float:
        """Return bytes a second; takes about `seconds`."""
        case = self._case
        with native_errors:
            return _native.memcpy_rate(case.threads, case.block_bytes, self._span, seconds)


class Sockets:
    """The best of 1 to 8 plain connections, sending the case's blocks one by one.

    How many are best is found out at the start, in about as long as one measurement.
    """

    def __init__(self, endpoint: str, case: Case, layout: Layout, seconds: float) -> None:
        self._endpoint = endpoint
        self._case = case
        self._memory = case.regions * layout.size_bytes
        rates = {streams: self._rate(streams, seconds / len(STREAMS)) for streams in STREAMS}
        self.streams = max(rates, key=rates.__getitem__)
        self.what = "plain sockets, the best of 1 to 8"

    def rate(self, seconds: float) -> float:
        """Return bytes a second; takes about `seconds`."""
        return self._rate(self.streams, seconds)

    def _rate(self, streams: int, seconds: float) -> float:
        operations = self._case.operations
        rates = [self._one_way(each, streams, seconds / len(operations)) for each in operations]
        return len(rates) / sum(1 / rate for rate in rates)

    def _one_way(self, operation: Literal["read", "write"], streams: int, seconds: float) -> float:
        block = self._case.block_bytes
        span = _span(block, self._memory // streams)
        with native_errors:
            return _native.socket_rate(
                self._endpoint, _OP[operation], streams, block, span, seconds
            )


def _span(block_bytes: int, wanted_bytes: int) -> int:
    """Return whole blocks of about `wanted_bytes`."""
    return max(1, min(wanted_bytes, MAX_SPAN_BYTES) // block_bytes) * block_bytes
