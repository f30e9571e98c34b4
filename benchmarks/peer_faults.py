"""What a batch says, and when, if its peer fails: point x fault x transport.

Scripted owners, in threads of this process, fail at an exact point of the protocol; engines in
processes of their own are killed and stopped, with batches under way or none. Each row is `--runs`
runs, in an order that is shuffled over all rows. `late` is the time from the fault (silence: from
the deadline) to the error. `next` counts the runs after which a batch to the restarted peer, or to
the one that went on, moved every byte. An answer that was on its way is lost with a reset: a peer
that resets every connection after one answer is given up in some runs and not in others.

    python benchmarks/peer_faults.py [--runs 9] [--deadline-s 0.3]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import describe
from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import MooncakeError
from mooncake_core.transfer import RemoteSegment, TransferEngine
from tests.transfer import owner as faults
from tests.transfer.owner import Act, Fault, Owner, Point
from tests.transfer.peer import Peer, numbers

SIZE = 3 << 20
LARGE = 32 << 20
PATIENT_S = 20.0
POINTS: tuple[Point, ...] = ("hello", "open", "request", "payload", "answer", "second")
ACTS: dict[str, Act] = {
    "ends": faults.end,
    "resets once": faults.reset,
    "resets always": faults.reset,
    "is silent": faults.fall_silent,
    "says garbage": faults.say(faults.header(magic=0)),
}
FRAMES: tuple[Point, ...] = ("hello", "open", "answer", "second")
"""Where the next bytes are a header, so that garbage can be told from payload."""
SAME_HOST = {"tcp": "network", "shm": "shm", "lent": "shm"}
"""lent: memory that is reached by process_vm_readv and process_vm_writev."""


@dataclass
class Row:
    """One line of the table."""

    transport: str
    op: str
    point: str
    fault: str
    run: Callable[[Row, float], None]
    late_s: list[float] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)
    dirty: set[bool] = field(default_factory=set)
    next_ok: int = 0
    runs: int = 0

    def note(self, error: MooncakeError, late_s: float) -> None:
        """Add a run."""
        self.late_s.append(late_s)
        self.errors.add(type(error).__name__)
        self.dirty.add(error.is_dirty)

    def __str__(self) -> str:
        head = f"{self.transport:4} {self.op:5} {self.point:9} {self.fault:13}"
        if not self.late_s:
            return f"{head} {'':17}  {'none: it goes on':23} {self.next_ok}/{self.runs}"
        median, last = statistics.median(self.late_s), max(self.late_s)
        dirty = "/".join("yes" if is_dirty else "no" for is_dirty in sorted(self.dirty))
        return (
            f"{head} {median * 1e3:8.1f} {last * 1e3:8.1f}  {'/'.join(sorted(self.errors)):16} "
            f"{dirty:6} {self.next_ok}/{self.runs}"
        )


def move(op: str, remote: RemoteSegment, address: int, size: int, timeout_s: float) -> None:
    batch = numbers(address), numbers(0), numbers(size)
    (remote.read if op == "read" else remote.write)(*batch, timeout_s=timeout_s)


def scripted(row: Row, deadline_s: float) -> None:
    """One run against an owner in a thread, and a batch to the one that takes its place."""
    is_silence = row.fault == "is silent"
    limit_s = deadline_s if is_silence else PATIENT_S
    engine = TransferEngine(TransferConfig(same_host="network"))
    memory = bytearray(SIZE)
    buffer = engine.register(memory)
    times = 1 if row.fault == "resets once" else 1 << 30
    owner = Owner(SIZE, Fault(row.point, ACTS[row.fault], times))  # type: ignore[arg-type]
    started_s = time.perf_counter()
    try:
        remote = engine.open_segment(owner.endpoint, 1, timeout_s=limit_s)
        started_s = time.perf_counter()
        move(row.op, remote, buffer.address, SIZE, limit_s)
    except MooncakeError as error:
        since_s = started_s + limit_s if is_silence else owner.reached_s
        row.note(error, time.perf_counter() - since_s)
    owner.close()
    with Owner(SIZE, listen=owner.address) as again:
        remote = engine.open_segment(again.endpoint, 1)
        move("read", remote, buffer.address, SIZE, PATIENT_S)
        row.next_ok += memory == again.memory
    engine.close()


class Batches(threading.Thread):
    """One after another until one fails."""

    def __init__(self, op: str, remote: RemoteSegment, address: int, limit_s: float) -> None:
        super().__init__()
        self.args = op, remote, address, LARGE, limit_s
        self.began = threading.Event()
        self.error: MooncakeError | None = None
        self.started_s = self.failed_s = 0.0

    def run(self) -> None:
        """Go on until one fails."""
        try:
            while True:
                self.started_s = time.perf_counter()
                move(*self.args)
                self.began.set()
        except MooncakeError as error:
            self.error, self.failed_s = error, time.perf_counter()


def real(row: Row, deadline_s: float) -> None:
    """One run against a process, and a batch to the one that is there then."""
    engine = TransferEngine(TransferConfig(same_host=SAME_HOST[row.transport]))  # type: ignore[arg-type]
    peer = Peer(SAME_HOST[row.transport])
    endpoint = peer.call("endpoint")
    is_lent = row.transport == "lent"
    made = ("lend", bytes(LARGE), "", False) if is_lent else ("create", LARGE)
    local = engine.create_segment(LARGE)
    remote = engine.open_segment(endpoint, peer.call(*made))
    is_stop = row.fault == "is stopped"
    batches = Batches(row.op, remote, local.address, deadline_s if is_stop else PATIENT_S)
    if row.point == "moving":
        batches.start()
        batches.began.wait()
    if is_stop:
        with peer.stopped():
            batches.join()
        since_s = batches.started_s + deadline_s
    else:
        since_s = time.perf_counter()
        peer.kill()
        if row.point == "idle":
            since_s = time.perf_counter()
            batches.start()
        batches.join()
        peer = Peer(SAME_HOST[row.transport], endpoint)
    assert batches.error is not None
    row.note(batches.error, batches.failed_s - since_s)
    row.next_ok += is_reached(engine, endpoint, peer)
    engine.close()
    peer.end()


def is_reached(engine: TransferEngine, endpoint: str, peer: Peer) -> bool:
    content = random.randbytes(SIZE)
    segment_id = peer.call("create", SIZE)
    with engine.register(content) as buffer:
        move("write", engine.open_segment(endpoint, segment_id), buffer.address, SIZE, PATIENT_S)
    return bool(peer.call("look", segment_id, 0, SIZE) == content)


def rows() -> list[Row]:
    ops = ("read", "write")
    table = [
        Row("tcp", op, point, fault, scripted)
        for op in ops
        for point in POINTS
        for fault in ACTS
        if fault != "says garbage" or point in FRAMES
    ]
    for transport in SAME_HOST:
        for op in ops:
            table.append(Row(transport, op, "idle", "is killed", real))
            table.append(Row(transport, op, "moving", "is killed", real))
    # Mapped and lent memory needs nobody at its other end, so stopping it is no fault.
    table += [Row("tcp", op, "moving", "is stopped", real) for op in ops]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--deadline-s", type=float, default=0.3)
    options = parser.parse_args()
    print(f"# {describe(options)}")
    table = rows()
    runs = [row for row in table for _ in range(options.runs)]
    random.Random(1).shuffle(runs)
    for row in runs:
        row.run(row, options.deadline_s)
        row.runs += 1
    print("way  op    point     the peer      late, ms      max  error            dirty  next")
    for row in table:
        print(row)


if __name__ == "__main__":
    main()
