"""Calls from several threads at once, timed one by one."""

from __future__ import annotations

import math
import threading
import time
from array import array
from itertools import chain, cycle, islice

from msgspec import Struct

from mooncake_core.te_bench.row import Row, Strand


class Measurement(Struct, frozen=True, kw_only=True):
    """What the threads of a row did."""

    seconds: float
    calls: list[list[int]]
    """Of each strand of each thread."""
    latencies_s: list[float]
    """Of every call, in no order."""
    cpu_s: float
    """Of this process."""


class Worker:
    """One thread of a row: calls its strands in turn, each from its first slot on."""

    def __init__(self, strands: list[Strand]) -> None:
        self.latencies_s = array("d")
        self.error: BaseException | None = None
        self._strands = strands

    def run(self, start: threading.Barrier, stop: threading.Event, limits: Limits) -> None:
        """Call until a limit is reached or `stop` is set, which an error does."""
        try:
            start.wait()
            self._run(stop, limits)
        except BaseException as error:
            self.error = error
            stop.set()

    def calls(self) -> list[int]:
        """Return how many calls each strand has done."""
        done, strands = len(self.latencies_s), len(self._strands)
        return [len(range(index, done, strands)) for index in range(strands)]

    def _run(self, stop: threading.Event, limits: Limits) -> None:
        clock, note, is_stopped = time.perf_counter, self.latencies_s.append, stop.is_set
        slots = zip(*(strand.calls for strand in self._strands), strict=True)
        calls = list(chain.from_iterable(slots))
        ends_s = clock() + limits.seconds
        for call in islice(cycle(calls), limits.rounds and limits.rounds * len(calls)):
            before_s = clock()
            call()
            after_s = clock()
            note(after_s - before_s)
            if after_s >= ends_s or is_stopped():
                return


class Limits(Struct, frozen=True, kw_only=True):
    """When threads stop calling; each calls at least once."""

    seconds: float = math.inf
    rounds: int | None = None
    """Through all slots."""


def run_threads(row: Row, limits: Limits) -> Measurement:
    """Run all threads of a row at once.

    Raises:
        MooncakeError: what the first call that failed raised; the others have ended too.
        KeyboardInterrupt: after the threads have ended.
    """
    workers = [Worker(strands) for strands in row.workers]
    start, stop = threading.Barrier(len(workers) + 1), threading.Event()
    threads = [
        threading.Thread(target=worker.run, args=(start, stop, limits)) for worker in workers
    ]
    for thread in threads:
        thread.start()
    try:
        cpu_s = time.process_time()
        start.wait()
        started_s = time.perf_counter()
        _join(threads)
        seconds = time.perf_counter() - started_s
        cpu_s = time.process_time() - cpu_s
    except BaseException:
        stop.set()
        start.abort()
        _join(threads)
        raise
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    return Measurement(
        seconds=seconds,
        calls=[worker.calls() for worker in workers],
        latencies_s=list(chain.from_iterable(worker.latencies_s for worker in workers)),
        cpu_s=cpu_s,
    )


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
