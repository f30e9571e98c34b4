"""The store from an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from array import array

import pytest
import torch

from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.errors import TransferError
from mooncake_core.store import PutResult, StoreClient
from mooncake_core.store.aio import (
    AsyncObjectReader,
    AsyncObjectView,
    AsyncObjectWriter,
    AsyncStoreClient,
)
from mooncake_core.store.objects import ObjectReader, ObjectView, ObjectWriter
from mooncake_core.store.patterns import remove_by_prefix
from mooncake_core.store.tensors import get_tensor, put_tensor

MIB = 1 << 20


def words(*values):
    return array("Q", values)


def open_client(cluster, **options):
    config = StoreClientConfig(master=cluster.rpc)
    return AsyncStoreClient(cluster.client.engine, config, **options)


@pytest.fixture
async def client(quiet_cluster):
    async with open_client(quiet_cluster) as client:
        yield client


def public_calls(kind):
    calls = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, _ in calls if not name.startswith("_")}


@pytest.mark.parametrize(
    ("blocking", "awaited"),
    [
        (StoreClient, AsyncStoreClient),
        (ObjectWriter, AsyncObjectWriter),
        (ObjectReader, AsyncObjectReader),
        (ObjectView, AsyncObjectView),
    ],
)
def test_every_call_can_be_awaited(blocking, awaited):
    at_once = {"metrics", "check_valid"}  # they do not block
    assert public_calls(blocking) - at_once <= public_calls(awaited) - {"call"}
    for name in public_calls(blocking) - at_once:
        call = getattr(awaited, name)
        assert inspect.iscoroutinefunction(call) or name == "list_objects", name
        assert call.__doc__, name
        assert set(inspect.signature(call).parameters) == set(
            inspect.signature(getattr(blocking, name)).parameters
        )


async def test_values_are_put_got_listed_and_removed(client):
    assert await client.put("aio/1", b"one") is PutResult.STORED
    assert await client.put("aio/1", b"two") is PutResult.EXISTS
    assert await client.upsert("aio/1", b"three")
    assert await client.batch_put([("aio/2", b"2"), ("aio/3", b"3")])
    assert await client.get("aio/1") == b"three"
    assert await client.get("aio/none") is None
    assert await client.batch_get(["aio/2", "aio/none"]) == [b"2", None]
    assert {one.key async for one in client.list_objects("aio/", page=2)} == {
        b"aio/1",
        b"aio/2",
        b"aio/3",
    }
    assert await client.exists("aio/2") and await client.remove("aio/2")
    assert await client.call(put_tensor, "aio/t", torch.ones(3)) is PutResult.STORED
    assert (await client.call(get_tensor, "aio/t")).tolist() == [1, 1, 1]
    assert await client.call(remove_by_prefix, "aio/") == 3


async def test_objects_are_written_and_read_range_by_range(client):
    own = client.blocking.engine.create_segment(2 * MIB)
    own.buffer[:MIB] = bytes(range(256)) * 4096
    half = MIB // 2
    async with await client.open_write("ranges", size_bytes=MIB) as writer:
        await asyncio.gather(
            *(
                writer.write(offset, words(own.address + offset), words(half))
                for offset in (half, 0)
            )
        )
        assert await client.open_write("ranges", size_bytes=1) is None
        await writer.commit()
    async with await client.open_read(["ranges", "none"]) as reader:
        assert reader.count == 1 and reader.found == [MIB, None]
        assert await reader.read(0, 0, words(own.address + MIB), words(MIB))
    assert own.buffer[:MIB] == own.buffer[MIB:]
    async with await client.view("ranges") as view:
        assert view.buffer == own.buffer[:MIB]
    assert await client.view("none") is None
    assert await client.remove("ranges")


async def test_an_object_that_is_not_committed_is_aborted(client):
    async with await client.open_write("left", size_bytes=10):
        pass
    assert await client.put("left", b"again")
    assert await client.remove("left")


async def test_several_objects_are_written_at_once(client):
    own = client.blocking.engine.create_segment(30)
    own.buffer[:] = bytes(range(30))
    await client.put("several/1", b"")
    opened = await client.batch_open_write([f"several/{number}" for number in range(3)], [10] * 3)
    assert opened[1] is PutResult.EXISTS
    writers = [opened[0], opened[2]]
    addresses, lengths = words(own.address, own.address + 20), words(10, 10)
    await client.write_ranges(writers, [0, 0], addresses, lengths)
    await client.batch_commit(writers)
    assert await client.batch_get(["several/0", "several/2"]) == [
        bytes(range(10)),
        bytes(range(20, 30)),
    ]
    assert await client.call(remove_by_prefix, "several/") == 3


async def lags():
    """Return how late the loop was, each millisecond, until this is cancelled."""
    found = []
    try:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(0.001)
            found.append(time.monotonic() - before_s - 0.001)
    except asyncio.CancelledError:
        return found


async def test_the_loop_runs_while_large_values_are_put_and_got(client):
    value = bytes(16 * MIB)
    watching = asyncio.create_task(lags())
    for number in range(8):
        keys = f"large/{number}/a", f"large/{number}/b"
        assert all(await asyncio.gather(*(client.put(key, value) for key in keys)))
        assert await client.get(keys[0]) == value
        assert await client.batch_remove(keys) == [True, True]
    watching.cancel()
    found = sorted(await watching)
    # The median: a machine that is busy lets anybody wait now and then.
    assert found[len(found) // 2] < 0.02, found[-5:]


class Held:
    """A call that begins, and goes on when it is let."""

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, client, method, *arguments, **options):
        self.begun.set()
        assert self.go.wait(20)
        return method(client, *arguments, **options)


async def start(client, held, *arguments, **options):
    task = asyncio.create_task(client.call(held, *arguments, **options))
    assert await asyncio.to_thread(held.begun.wait, 20)
    return task


async def goes_on(task):
    done, _ = await asyncio.wait([task], timeout=0.05)
    return not done


async def test_a_cancelled_call_that_waits_for_its_turn_is_never_made(quiet_cluster):
    async with open_client(quiet_cluster, threads=1) as client:
        first = await start(client, held := Held(), StoreClient.put, "first", b"1")
        second = asyncio.create_task(client.put("second", b"2"))
        await asyncio.sleep(0)  # it waits for the thread
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        held.go.set()
        assert await first
        assert await client.batch_exists(["first", "second"]) == [True, False]
        assert await client.remove("first")


async def test_a_cancelled_call_ends_before_its_task_goes_on(client):
    await client.put("there", b"value")
    memory = bytearray(5)
    reading = await start(client, held := Held(), StoreClient.get_into, "there", memory)
    for _ in range(3):
        reading.cancel()
        assert await goes_on(reading)
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert memory == b"value"
    assert await client.remove("there")


async def put_once_it_is_free(client, key):
    while not await client.put(key, b"now it is free"):
        pass  # each try asks the master


async def test_what_was_opened_for_a_task_that_is_gone_is_closed(client):
    held = Held()
    opening = await start(client, held, StoreClient.open_write, "opened", size_bytes=10)
    opening.cancel()
    assert await goes_on(opening)
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.wait_for(put_once_it_is_free(client, "opened"), 20)
    assert await client.remove("opened")


async def test_an_error_of_a_cancelled_call_is_dropped(client):
    failing = await start(client, held := Held(), StoreClient.put, b"x" * 70_000, b"")
    failing.cancel()
    assert await goes_on(failing)
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await failing


async def test_closing_waits_for_calls_that_are_under_way(quiet_cluster):
    client = open_client(quiet_cluster)
    await client.stats()
    late = await start(client, held := Held(), StoreClient.get, "anything")
    closing = asyncio.create_task(client.close())
    assert await goes_on(closing)
    held.go.set()
    with pytest.raises(TransferError):
        await late
    await closing
    await client.close()
    with pytest.raises(TransferError, match="closed"):
        await client.get("anything")


def test_it_has_all_that_the_blocking_client_has():
    public = {name for name in dir(StoreClient) if not name.startswith("_")}
    assert public <= set(dir(AsyncStoreClient))


async def test_what_is_raised_while_a_view_is_in_use_is_not_replaced(client):
    assert await client.put("raised", b"value")
    with pytest.raises(LookupError, match="mine"):
        async with await client.view("raised") as view:
            buffer = view.buffer
            raise LookupError("mine")
    assert buffer == b"value"
    with pytest.raises(BufferError):
        async with await client.view("raised") as view:
            buffer = view.buffer


async def test_a_task_that_is_cancelled_while_it_views_ends_as_cancelled(client):
    assert await client.put("viewed", b"value")
    kept = []

    async def look():
        async with await client.view("viewed") as view:
            kept.append(view.buffer)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(look(), 0.2)
    assert [bytes(buffer) for buffer in kept] == [b"value"]
