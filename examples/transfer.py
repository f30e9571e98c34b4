"""Two processes, one transfer engine each: one owns memory, the other reads and writes it.

    python examples/transfer.py

docs/TRANSFER.md goes through it.
"""

from __future__ import annotations

import array
import asyncio
import multiprocessing
from multiprocessing.connection import Connection

from mooncake_core.config import TransferConfig
from mooncake_core.errors import BufferNotRegistered, TransferCancelled, TransferError
from mooncake_core.transfer import TransferEngine

MIB = 1 << 20


def numbers(*values: int) -> array.array[int]:
    """Batches are described by arrays of unsigned 64-bit integers."""
    return array.array("Q", values)


def own(pipe: Connection) -> None:
    """Have memory, say where, and wait for what comes."""
    engine = TransferEngine(TransferConfig(listen="127.0.0.1:0"))
    segment = engine.create_segment(64 * MIB, name="kv")  # memory of the engine's: the fastest
    weights = bytearray(b"weights" * 1000)  # memory that exists: lent
    lent = engine.lend(weights, name="weights", read_only=True)
    pipe.send(engine.endpoint)

    async def wait_for_a_notification() -> None:
        notification = await engine.next_notification()
        first = bytes(segment.buffer[:5])
        print(f"owner: peer {notification.peer_id:x} says {notification.data!r}; I have {first!r}")

    asyncio.run(wait_for_a_notification())
    pipe.send("seen")
    pipe.recv()  # the other is done
    lent.close()  # True once no peer can reach it
    segment.close()
    engine.close()


async def use(endpoint: str) -> None:
    """Read and write the owner's memory."""
    engine = TransferEngine(TransferConfig(listen="127.0.0.1:0", timeout_s=5))
    kv = engine.open_segment(endpoint, "kv")
    print(f"user: kv over {kv.transport}, since {kv.reason}")

    local = bytearray(b"hello" + bytes(MIB - 5))
    with engine.register(local) as buffer:  # local memory of batches is registered
        start = buffer.address
        # One call, many pieces: (local address, offset there, length) of each.
        kv.write(numbers(start, start + 5), numbers(0, 4096), numbers(5, MIB - 5), notify=b"done")

        transfer = kv.submit_read(numbers(start), numbers(0), numbers(MIB), priority="background")
        await transfer
        unwanted = kv.submit_read(numbers(start), numbers(0), numbers(MIB))
        unwanted.cancel()
        try:
            await unwanted
        except TransferCancelled as error:
            print(f"user: {error}; dirty: {error.is_dirty}")

        again = kv.prepare_write(numbers(start), numbers(0), numbers(MIB))  # checked once,
        for _ in range(3):
            again.run()  # carried out often

        weights = engine.open_segment(endpoint, "weights")
        weights.read(numbers(start), numbers(0), numbers(7))
        print(f"user: read {bytes(local[:7])!r}")
        for attempt in (
            lambda: weights.write(numbers(start), numbers(0), numbers(7)),
            lambda: kv.read(numbers(4096), numbers(0), numbers(8)),
            lambda: engine.open_segment(endpoint, "no such name"),
        ):
            try:
                attempt()
            except (BufferNotRegistered, TransferError) as error:
                print(f"user: {type(error).__name__}: {error}")

    for path in engine.statistics():
        print(f"user: {path.peer} over {path.transport}: {path.written_bytes:,} bytes written")
    engine.close()


def main() -> None:
    """Run both."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    owner = context.Process(target=own, args=(other,))
    owner.start()
    asyncio.run(use(pipe.recv()))
    pipe.recv()
    pipe.send("done")
    owner.join()


if __name__ == "__main__":
    main()
