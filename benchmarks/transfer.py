"""How fast batches move, as a ratio to what the machine can do at all, in one run.

shm is compared with memcpy inside this process, tcp with one plain socket over loopback. Each row
is the median over `--rounds`, spread is (max - min) / median.

    python benchmarks/transfer.py [--rounds 15] [--total-mib 256]
"""

from __future__ import annotations

import argparse
import array
import functools
import multiprocessing
import platform
import socket
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from mooncake_core.config.tables import TransferConfig
from mooncake_core.transfer import RemoteSegment, TransferEngine

SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]


def own_memory(pipe: Connection, same_host: str, size_bytes: int) -> None:
    engine = TransferEngine(TransferConfig(same_host=same_host))  # type: ignore[arg-type]
    segment = engine.create_segment(size_bytes)
    pipe.send((engine.endpoint, segment.id))
    pipe.recv()


def rates(move: Callable[[], None], total_bytes: int, rounds: int) -> tuple[float, float]:
    """Return the median in GB/s, and the spread."""
    move()
    measured = []
    for _ in range(rounds):
        started_s = time.perf_counter()
        move()
        measured.append(total_bytes / (time.perf_counter() - started_s) / 1e9)
    median = statistics.median(measured)
    return median, (max(measured) - min(measured)) / median


def batch(
    address: int, piece_bytes: int, total_bytes: int
) -> tuple[array.array[int], array.array[int], array.array[int]]:
    starts = range(0, total_bytes, piece_bytes)
    return (
        array.array("Q", [address + start for start in starts]),
        array.array("Q", starts),
        array.array("Q", [piece_bytes]) * len(starts),
    )


def memcpy_rate(total_bytes: int, rounds: int) -> tuple[float, float]:
    source, target = memoryview(bytearray(total_bytes)), memoryview(bytearray(total_bytes))

    def copy() -> None:
        target[:] = source

    return rates(copy, total_bytes, rounds)


def socket_rate(total_bytes: int, rounds: int) -> tuple[float, float]:
    """One direction over loopback, received by another thread (both without the GIL)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    source, target = memoryview(bytearray(total_bytes)), memoryview(bytearray(total_bytes))

    def receive() -> None:
        got = 0
        while got < total_bytes:
            got += receiver.recv_into(target[got:])

    def move() -> None:
        thread = threading.Thread(target=receive)
        thread.start()
        sender.sendall(source)
        thread.join()

    with sender, receiver:
        return rates(move, total_bytes, rounds)


def measure(name: str, remote: RemoteSegment, address: int, total: int, rounds: int) -> None:
    baseline = memcpy_rate if remote.transport == "shm" else socket_rate
    for piece_bytes in SIZES:
        pieces = batch(address, piece_bytes, total)
        base, _ = baseline(total, rounds)
        for op, move in (("read", remote.read), ("write", remote.write)):
            rate, spread = rates(functools.partial(move, *pieces), total, rounds)
            print(
                f"{name:5} {op:6} {piece_bytes >> 10:7} {rate:8.2f} {spread:7.0%} "
                f"{base:10.2f} {rate / base:7.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--total-mib", type=int, default=256, help="bytes of one batch")
    options = parser.parse_args()
    total = options.total_mib << 20
    print(f"# {platform.platform()}, {multiprocessing.cpu_count()} CPUs, {options}")
    print("way   op     KiB/piece   GB/s  spread  base GB/s   ratio")
    context = multiprocessing.get_context("spawn")
    for name, same_host in (("shm", "shm"), ("tcp", "network")):
        pipe, other = context.Pipe()
        owner = context.Process(target=own_memory, args=(other, same_host, total), daemon=True)
        owner.start()
        endpoint, segment_id = pipe.recv()
        engine = TransferEngine(TransferConfig(same_host=same_host))  # type: ignore[arg-type]
        local = engine.create_segment(total)
        remote = engine.open_segment(endpoint, segment_id)
        measure(name, remote, local.address, total, options.rounds)
        engine.close()
        pipe.send(None)
        owner.join()


if __name__ == "__main__":
    main()
