"""One client process of a benchmark.

    python -m mooncake_core.store_bench.worker '{"config": {...}, ...}'

It carries out one order a line until its standard input ends, which it does when the parent ends,
whichever way; then it removes what it has put. SIGTERM ends a measurement early.
"""

from __future__ import annotations

import signal
import sys
import threading

import msgspec

from mooncake_core.config import StoreClientConfig
from mooncake_core.errors import MooncakeError
from mooncake_core.store import ClusterStats, StoreClient
from mooncake_core.store_bench.load import LOADS, Bound, Load, remove
from mooncake_core.store_bench.measure import Limits, run_loads
from mooncake_core.store_bench.messages import (
    Answer,
    Failed,
    Finish,
    Measured,
    Order,
    Prepare,
    Ready,
    Run,
    Start,
    ThreadDone,
)
from mooncake_core.store_bench.plan import Case, Place, filled_by, filled_key
from mooncake_core.store_bench.tally import Tally
from mooncake_core.store_bench.values import fill
from mooncake_core.transfer import TransferEngine

FILL_BYTES = 16 << 20
"""Put at once while the working set is filled."""


class Worker:
    """Carries out orders. close() removes what it has put."""

    def __init__(self, start: Start, stop: threading.Event) -> None:
        config = start.config
        self._start = start
        self._stop = stop
        self._engine = TransferEngine(config.transfer)
        self._client = StoreClient(
            self._engine,
            StoreClientConfig(
                master=start.master, replicas=config.replicas, timeout_s=config.timeout_s
            ),
        )
        self._bound = Bound(self._engine, self._client, config, start.prefix)
        self._filled: list[bytes] = []
        self._loads: list[Load] = []
        self._faults: dict[str, int] = {}
        self._evictions = 0

    def carry_out(self, order: Order) -> Answer:
        """Return the answer to an order."""
        match order:
            case Prepare():
                self._prepare(order.case)
                return Ready()
            case Run():
                seconds = order.seconds if order.seconds is not None else float("inf")
                limits = Limits(seconds=seconds, calls=order.calls)
                return self._measured(run_loads(self._loads, limits, self._stop))
            case Finish():
                return self._finish()

    def close(self) -> None:
        """Remove what is left, and end the client."""
        try:
            self._finish()
        except MooncakeError:
            pass  # the store is away or ends itself: nobody is left to be told
        finally:
            self._client.close()
            self._engine.close()

    def _prepare(self, case: Case) -> None:
        if not any(node.state == "online" for node in self._stats().nodes):
            raise MooncakeError(f"{self._start.master}: no store node is online there")
        if case.operation != "put":
            self._fill(case)
        for thread in range(case.threads):
            place = Place(self._start.client, thread)
            self._loads.append(LOADS[case.operation](self._bound, case, place))
        self._faults = self._client.read_faults
        self._evictions = self._stats().evictions

    def _fill(self, case: Case) -> None:
        mine = filled_by(self._start.config, self._start.client)
        keys = [filled_key(self._start.prefix, case, index) for index in mine]
        batch = max(1, min(1024, FILL_BYTES // case.size_bytes))
        arena = self._bound.arena(case.size_bytes, batch)
        try:
            for start in range(0, len(keys), batch):
                if self._stop.is_set():
                    break
                some = keys[start : start + batch]
                self._filled += some
                fill(arena.slots[0], some)
                views = arena.slots[0].views[: len(some)]
                self._client.batch_put(zip(some, views, strict=True))
        finally:
            arena.close()

    def _finish(self) -> Measured:
        """Also after a failure in the middle of a row."""
        loads, self._loads = self._loads, []
        for load in loads:
            load.tally = Tally()
        for load in loads:
            load.close()
        done = self._measured([load.tally for load in loads])
        filled, self._filled = self._filled, []
        remove(self._client, filled)
        return done

    def _measured(self, tallies: list[Tally]) -> Measured:
        faults, evictions = self._client.read_faults, self._stats().evictions
        since = {cause: count - self._faults.get(cause, 0) for cause, count in faults.items()}
        evicted = evictions - self._evictions
        self._faults, self._evictions = faults, evictions
        return Measured(
            threads=[_thread_done(tally) for tally in tallies],
            read_faults=since,
            evictions=evicted,
        )

    def _stats(self) -> ClusterStats:
        return self._client.stats()


def _thread_done(tally: Tally) -> ThreadDone:
    return ThreadDone(
        counts=tally.counts,
        failures=dict(tally.failures),
        called_s=tally.called_s,
        wrong=tally.wrong,
        first_wrong=tally.first_wrong,
    )


def _say(answer: Answer) -> None:
    print(msgspec.json.encode(answer).decode(), flush=True)


def _serve(worker: Worker) -> None:
    for line in sys.stdin.buffer:
        try:
            _say(worker.carry_out(msgspec.json.decode(line, type=Order)))
        except MooncakeError as error:
            _say(Failed(problem=str(error)))


def main(encoded: str) -> None:
    """Be a client process."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        worker = Worker(msgspec.json.decode(encoded, type=Start), stop)
    except MooncakeError as error:
        _say(Failed(problem=str(error)))
        return
    try:
        _say(Ready())
        _serve(worker)
    except BrokenPipeError:
        pass  # the parent is gone
    finally:
        worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
