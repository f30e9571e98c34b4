"""How a test knows from outside where another process is."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

PLACES = 64
_WORD_BYTES = 8


def await_unread(port, count, timeout_s=10.0):
    """Return once more than `count` bytes wait unread in a connection to this port."""
    end = time.monotonic() + timeout_s
    while not any(waiting > count for waiting in _unread(port)):
        assert time.monotonic() < end, f"no {count} bytes came to port {port}"


def _unread(port):
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, _, queues, *_ = line.split()
        if int(local.split(":")[1], 16) == port:
            yield int(queues.split(":")[1], 16)


class Progress:
    """Looks how much of a segment of another process has changed since it was marked."""

    def __init__(self, engine, endpoint, segment_id, size_bytes):
        self.remote = engine.open_segment(endpoint, segment_id)
        self.probe = engine.create_segment(PLACES * _WORD_BYTES)
        steps = range(PLACES)
        self.batch = (
            array("Q", [self.probe.address + _WORD_BYTES * step for step in steps]),
            array("Q", [size_bytes * step // PLACES for step in steps]),
            array("Q", [_WORD_BYTES] * PLACES),
        )
        self.mark()

    def mark(self):
        """Count from what is there now."""
        self.marked = self._words()

    def changed(self):
        """Return how many of 64 places, equally far from each other, have changed."""
        return sum(new != old for new, old in zip(self._words(), self.marked, strict=True))

    def await_change(self, timeout_s=10.0):
        """Return at once when a place has."""
        end = time.monotonic() + timeout_s
        while self._words() == self.marked:
            assert time.monotonic() < end, "nothing was written"

    def _words(self):
        self.remote.read(*self.batch)
        return list(memoryview(bytes(self.probe.buffer)).cast("Q"))

    def close(self):
        """Let go of it."""
        self.remote.close()
        self.probe.close()
