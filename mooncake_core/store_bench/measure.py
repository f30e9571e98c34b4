"""The loads of one client, all at once."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence

from msgspec import Struct

from mooncake_core.store_bench.load import Load
from mooncake_core.store_bench.tally import Tally


class Limits(Struct, frozen=True, kw_only=True):
    """When a thread stops calling; it calls at least once."""

    seconds: float = math.inf
    calls: int | None = None


def run_loads(loads: Sequence[Load], limits: Limits, stop: threading.Event) -> list[Tally]:
    """Run each load in a thread and return what each did.

    Args:
        loads: one a thread.
        limits: of each.
        stop: ends all early.

    Raises:
        Exception: what a call raised that is no error of the store; the others have ended too.
    """
    start = threading.Barrier(len(loads))
    errors: list[BaseException] = []

    def work(load: Load) -> None:
        try:
            start.wait()
            _call(load, limits, stop)
        except BaseException as error:
            errors.append(error)
            stop.set()
            start.abort()

    for load in loads:
        load.tally = Tally()
    threads = [threading.Thread(target=work, args=(load,)) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return [load.tally.close() for load in loads]


def _call(load: Load, limits: Limits, stop: threading.Event) -> None:
    clock, is_stopped = time.perf_counter, stop.is_set
    ends_s = clock() + limits.seconds
    calls = itertools.count() if limits.calls is None else range(limits.calls)
    for _ in calls:
        load.call()
        if clock() >= ends_s or is_stopped():
            return
