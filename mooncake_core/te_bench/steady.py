"""One thread that calls and verifies, call by call, while something else happens."""

from __future__ import annotations

import itertools
import threading
import time

from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.row import Row, Strand

SEEDS = itertools.count(2, 2)
"""Even, and no two the same in one process."""


def verified_call(strand: Strand, control: Control) -> float:
    """Make the strand's first call with bytes of its own, look at each, and return its seconds.

    Raises:
        ChecksumMismatch: a byte is not what it should be.
        TransferError: the call failed.
    """
    seed = next(SEEDS)
    strand.arm(control, seed)
    before_s = time.perf_counter()
    strand.calls[0]()
    taken_s = time.perf_counter() - before_s
    strand.check(control, seed, 1)
    return taken_s


class Steady:
    """Calls the strands of a row in turn, each call verified, until stop() or an error."""

    def __init__(self, row: Row, control: Control) -> None:
        self.latencies_s: list[float] = []
        """Of the calls whose bytes were right."""
        self.error: BaseException | None = None
        self.failed_at_s = 0.0
        """On time.perf_counter(); 0: no call has failed."""
        self._calling = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, args=(row, control))
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether it calls no more."""
        return not self._thread.is_alive()

    def wait_for_call(self) -> None:
        """Wait until a call begins, or none will."""
        self._calling.clear()
        while not self._calling.wait(0.01) and not self.has_ended:
            continue

    def stop(self) -> None:
        """End after the call that is under way. Idempotent."""
        self._is_stopped = True
        self._thread.join()

    def _run(self, row: Row, control: Control) -> None:
        try:
            for strand in itertools.cycle(row.strands):
                if self._is_stopped:
                    return
                seed = next(SEEDS)
                strand.arm(control, seed)
                seconds = self._call(strand)
                strand.check(control, seed, 1)
                self.latencies_s.append(seconds)
        except BaseException as error:
            self.error = error

    def _call(self, strand: Strand) -> float:
        before_s = time.perf_counter()
        self._calling.set()
        try:
            strand.calls[0]()
        except BaseException:
            self.failed_at_s = time.perf_counter()
            raise
        return time.perf_counter() - before_s
