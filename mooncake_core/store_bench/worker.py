"""One client process of a benchmark.

    python -m mooncake_core.store_bench.worker '{"config": {...}, ...}'

It carries out one order a line until its standard input ends, which it does when the parent ends,
whichever way; then it removes what it has put, and says what is left. SIGTERM ends an order early.
"""

from __future__ import annotations

import contextlib
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
    Left,
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
        self._bound = Bound(self._engine, self._client, config, prefix=start.prefix, stop=stop)
        self._owed: list[bytes] = []
        """Keys that are to be removed, besides those that the loads have put."""
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

    def close(self) -> int:
        """Remove what is left and end the client; returns how many keys could not be removed."""
        try:
            self._close_loads()
            self._owed = remove(self._client, self._owed)
        finally:
            self._client.close()
            self._engine.close()
        return len(self._owed)

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
                self._owed += some
                fill(arena.slots[0], some)
                views = arena.slots[0].views[: len(some)]
                self._client.batch_put(zip(some, views, strict=True))
        finally:
            arena.close()

    def _finish(self) -> Measured:
        done = self._measured(self._close_loads())
        self._owed = remove(self._client, self._owed)
        return done

    def _close_loads(self) -> list[Tally]:
        """Also after a failure in the middle of a row; returns what they found in the end."""
        loads, self._loads = self._loads, []
        for load in loads:
            load.tally = Tally()
        for load in loads:
            self._owed += load.close()
        return [load.tally for load in loads]

    def _measured(self, tallies: list[Tally]) -> Measured:
        faults = self._client.read_faults
        # Nobody waits for the figures of what was told to end, and the master may be away.
        evictions = self._evictions if self._stop.is_set() else self._stats().evictions
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


def _say(answer: Answer | Left) -> None:
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
    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        try:
            _say(Ready())
            _serve(worker)
        finally:
            _say(Left(keys=worker.close()))


if __name__ == "__main__":
    main(sys.argv[1])
