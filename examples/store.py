"""A store on this host, and what a process does with it: values, tensors, ranges, chains, lists.

    python examples/store.py    # in a checkout that is not installed: PYTHONPATH=. before it

docs/STORE.md goes through it. It starts a master and two store nodes of its own; for a store that
runs, give `StoreClientConfig(master="host:port")` and leave `LoopbackStore` out.
"""

from __future__ import annotations

import array
import asyncio

from mooncake_core.config import StoreClientConfig, TransferConfig
from mooncake_core.errors import TensorMismatch
from mooncake_core.store import Link, PutOptions, StoreClient
from mooncake_core.store.aio import AsyncStoreClient
from mooncake_core.store.patterns import list_matching, remove_by_prefix
from mooncake_core.store_bench.loopback import LoopbackStore
from mooncake_core.transfer import TransferEngine

MIB = 1 << 20


def numbers(*values: int) -> array.array[int]:
    """Memory is described by arrays of unsigned 64-bit integers."""
    return array.array("Q", values)


def use_values(store: StoreClient) -> None:
    """Put and get bytes."""
    result = store.put("greeting", b"hello")
    again = store.put("greeting", b"hi")  # objects are immutable: the first one stays
    print(f"put: {result.name}, {again.name}; get: {store.get('greeting')!r}")
    store.upsert("greeting", b"hi")
    print(f"after upsert: {store.get('greeting')!r}, a miss: {store.get('nothing')}")

    store.batch_put([(f"many/{number}", bytes([number])) for number in range(100)])
    print("leading keys there:", store.match_prefix(["many/0", "many/1", "none", "many/2"]))
    options = PutOptions(replicas=2, strict=True, pin="soft", soft_pin_s=60)
    store.put("important", b"kept longer, twice", options=options)
    (described,) = store.describe(["important"])
    assert described is not None
    print(f"important: {described.size_bytes} bytes, {len(set(described.copies))} nodes")


def use_views(store: StoreClient) -> None:
    """Read without a copy."""
    store.put("large", bytes(4 * MIB))
    view = store.view("large")
    assert view is not None
    with view:
        memory = view.buffer  # read-only, the store's own memory on this host
        print(f"view: {len(memory):,} bytes, copied: {view.is_copy}")
        memory.release()


def write_by_layers(engine: TransferEngine, store: StoreClient) -> None:
    """Write an object part by part from registered memory, and read ranges of it."""
    own = engine.create_segment(4 * MIB)
    own.buffer[:] = bytes(range(256)) * (4 * MIB // 256)
    writer = store.open_write("kv/block-0", size_bytes=4 * MIB, part_bytes=MIB)
    assert writer is not None  # nobody else writes it, and it is not there
    with writer:  # aborts unless it was committed
        for layer in (2, 0, 3, 1):
            writer.write_part(layer, numbers(own.address + layer * MIB), numbers(MIB))
        writer.commit()  # visible from here on

    target = engine.create_segment(MIB)
    with store.open_read(["kv/block-0", "kv/block-1"]) as reader:
        print(f"blocks there: {reader.count} of 2")
        is_there = reader.read(0, MIB + 5, numbers(target.address), numbers(3))
        print(f"range: {is_there}, {bytes(target.buffer[:3])!r}")


def put_a_chain(store: StoreClient) -> None:
    """Say what depends on what, so that the end of a chain is evicted first."""
    parent = b""
    for depth in range(3):
        key = f"prefix/{depth}".encode()
        store.put(key, bytes(1000), link=Link(parent=parent, depth=depth))
        parent = key
    for rank in range(2):  # readable once both are there, and gone together
        shard = Link(group="block-9", group_size=2)
        store.put(f"block-9/rank-{rank}", bytes(100), link=shard)
        print(f"rank 0 readable: {store.exists('block-9/rank-0')}")


def use_tensors(store: StoreClient) -> None:
    """Put and get a tensor with its dtype and shape."""
    try:
        import torch  # noqa: PLC0415  the example runs without it, too
    except ImportError:
        print("tensor: PyTorch is not installed")
        return
    from mooncake_core.store.tensors import get_tensor, get_tensor_into, put_tensor  # noqa: PLC0415

    put_tensor(store, "weights", torch.arange(6, dtype=torch.bfloat16).view(2, 3))
    print("tensor:", get_tensor(store, "weights"))
    try:
        get_tensor_into(store, "weights", torch.empty(3, 2))
    except TensorMismatch as error:
        print(f"TensorMismatch: {error}")


async def use_asyncio(engine: TransferEngine, config: StoreClientConfig) -> None:
    """Make the same calls from an event loop."""
    async with AsyncStoreClient(engine, config) as store:
        await asyncio.gather(*(store.put(f"async/{number}", b"value") for number in range(10)))
        found = [one.key async for one in store.list_objects("async/")]
        print(f"asyncio: {len(found)} objects")
        print("removed:", await store.call(remove_by_prefix, "async/"))


def main() -> None:
    """Run all."""
    transfer = TransferConfig()
    with LoopbackStore(nodes=2, capacity_bytes=64 * MIB, transfer=transfer) as running:
        engine = TransferEngine(transfer)  # one a process
        config = StoreClientConfig(master=running.master)
        store = StoreClient(engine, config)
        use_values(store)
        use_views(store)
        write_by_layers(engine, store)
        put_a_chain(store)
        use_tensors(store)
        asyncio.run(use_asyncio(engine, config))
        print("matching:", len(list(list_matching(store, r"^many/\d$"))))
        stats = store.stats()
        print(f"store: {stats.objects} objects, {stats.hits} hits, {stats.misses} misses")
        print(f"client: {store.metrics()}")
        store.close()
        engine.close()


if __name__ == "__main__":
    main()
