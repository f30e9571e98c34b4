"""What one thread has done: counted while it calls. Pure."""

from __future__ import annotations

from array import array
from collections import Counter

from msgspec import Struct


class Count(Struct, kw_only=True):
    """Calls of one operation by one thread or by several."""

    calls: int = 0
    keys: int = 0
    hits: int = 0
    """Keys that were stored, found, or there."""
    latencies: bytes = b""
    """Seconds of each call that did not fail, in no order: doubles of this machine."""


class Tally:
    """Of one thread, in one measurement."""

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        self.failures: Counter[str] = Counter()
        """Name of the error -> calls that raised it."""
        self.called_s = 0.0
        """Time inside calls, those that failed included."""
        self.wrong = 0
        """Values of which a byte was not what it should be."""
        self.first_wrong = ""
        """What was wrong with the first."""
        self._latencies: dict[str, array[float]] = {}

    def note(self, operation: str, seconds: float, keys: int, hits: int) -> None:
        """Count a call that did not fail."""
        count = self.counts.setdefault(operation, Count())
        count.calls += 1
        count.keys += keys
        count.hits += hits
        self.called_s += seconds
        self._latencies.setdefault(operation, array("d")).append(seconds)

    def note_failure(self, error: BaseException, seconds: float) -> None:
        """Count a call that raised."""
        self.failures[type(error).__name__] += 1
        self.called_s += seconds

    def note_wrong(self, problem: str) -> None:
        """Count a value that is not what it should be."""
        self.wrong += 1
        self.first_wrong = self.first_wrong or problem

    def close(self) -> Tally:
        """Finish the counts with their latencies."""
        for operation, latencies in self._latencies.items():
            self.counts[operation].latencies = latencies.tobytes()
        return self
