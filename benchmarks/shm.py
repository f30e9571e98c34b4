"""Same-host transfers against plain memcpy of the same blocks, and what a small write costs.

Each pair is one measurement of memcpy and then one of the engine, of equal length, with as many
threads and as large a memory, all of it touched before. A row is the medians over the pairs, and
the ratio's median with its smallest and largest value.

    python benchmarks/shm.py [--pairs 9] [--seconds 0.2] [--lent]

`--lent` measures memory that its owner had already, which the kernel copies, instead of a segment
that both map.
"""

from __future__ import annotations

import argparse
import array
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
from machine import describe

from mooncake_core.config.tables import TransferConfig
from mooncake_core.native import _native
from mooncake_core.transfer import RemoteSegment, TransferEngine, crc32c

MIB = 1 << 20
BLOCKS = [1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB]
THREADS = [1, 2]
SPAN = 64 * MIB
"""Memory of each side and thread; blocks walk round it."""
SMALL = 4096
CALLS = 2000
"""Small writes, or empty calls, of one measurement."""


def own_memory(pipe: Connection, is_lent: bool) -> None:
    engine = TransferEngine(TransferConfig())
    size = SPAN * max(THREADS)
    memory = np.ones(size, dtype=np.uint8) if is_lent else size
    segment = engine.lend(memory) if is_lent else engine.create_segment(size)
    pipe.send((engine.endpoint, segment.id))
    pipe.recv()


def blocks_of(address: int, index: int, block_bytes: int) -> tuple[array.array[int], ...]:
    """Return the batch of one thread: all blocks of its share."""
    starts = range(SPAN * index, SPAN * (index + 1), block_bytes)
    return (
        array.array("Q", [address + start for start in starts]),
        array.array("Q", starts),
        array.array("Q", [block_bytes]) * len(starts),
    )


def engine_rate(
    move: Callable[..., None], batches: list[tuple[array.array[int], ...]], seconds: float
) -> float:
    """Return bytes a second over one thread a batch, each repeating its batch for `seconds`."""
    moved = [0] * len(batches)
    barrier = threading.Barrier(len(batches) + 1)

    def work(index: int) -> None:
        barrier.wait()
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            move(*batches[index])
            moved[index] += SPAN

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    barrier.wait()
    started_s = time.perf_counter()
    for thread in threads:
        thread.join()
    return sum(moved) / (time.perf_counter() - started_s)


def call_us(call: Callable[[], object]) -> float:
    """Return the median time of one call."""
    times = []
    for _ in range(CALLS):
        started_ns = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - started_ns)
    return statistics.median(times) / 1000


def measure_blocks(remote: RemoteSegment, address: int, options: argparse.Namespace) -> None:
    print("op     MiB  threads  memcpy GB/s  engine GB/s  ratio  (least, most)")
    for op, move in (("write", remote.write), ("read", remote.read)):
        for block_bytes in BLOCKS:
            for threads in THREADS:
                batches = [blocks_of(address, i, block_bytes) for i in range(threads)]
                engine_rate(move, batches, 0)
                pairs = [
                    (
                        _native.memcpy_rate(threads, block_bytes, SPAN, options.seconds),
                        engine_rate(move, batches, options.seconds),
                    )
                    for _ in range(options.pairs)
                ]
                bases, rates = zip(*pairs, strict=True)
                ratios = [fast / plain for plain, fast in pairs]
                base, rate = statistics.median(bases) / 1e9, statistics.median(rates) / 1e9
                print(
                    f"{op:6} {block_bytes // MIB:3}  {threads:7}  {base:11.2f}"
                    f"  {rate:11.2f}  {statistics.median(ratios):5.2f}"
                    f"  ({min(ratios):.2f}, {max(ratios):.2f})",
                    flush=True,
                )


def measure_small_write(remote: RemoteSegment, address: int, options: argparse.Namespace) -> None:
    batch = [array.array("Q", [number]) for number in (address, 0, SMALL)]
    write, empty = partial(remote.write, *batch), partial(crc32c, b"")
    call_us(write)
    pairs = [(call_us(empty), call_us(write)) for _ in range(options.pairs)]
    beyond = [small - nothing for nothing, small in pairs]
    print(
        f"4 KiB write: {statistics.median(small for _, small in pairs):.2f} us, empty native call: "
        f"{statistics.median(nothing for nothing, _ in pairs):.2f} us, beyond it: "
        f"{statistics.median(beyond):.2f} us ({min(beyond):.2f}, {max(beyond):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one measurement")
    parser.add_argument("--lent", action="store_true")
    options = parser.parse_args()
    print(f"# {describe(options)}")
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    owner = context.Process(target=own_memory, args=(other, options.lent), daemon=True)
    owner.start()
    endpoint, segment_id = pipe.recv()
    engine = TransferEngine(TransferConfig())
    local = np.ones(SPAN * max(THREADS), dtype=np.uint8)
    remote = engine.open_segment(endpoint, segment_id)
    assert remote.transport == "shm", remote.reason
    with engine.register(local) as buffer:
        measure_small_write(remote, buffer.address, options)
        measure_blocks(remote, buffer.address, options)
    engine.close()
    pipe.send(None)
    owner.join()


if __name__ == "__main__":
    main()
