"""An instance keeps the conductor informed, whatever happens to the conductor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web
from serving import until

from mooncake_core.cache.page_table import PageTable
from mooncake_core.cache.prefix_cache import PrefixCache
from mooncake_core.messages import Heartbeat, InstanceInfo, InstanceLoad, ModelInfo
from mooncake_core.worker.announcer import Announcer
from mooncake_core.worker.http import Peers

MODEL = ModelInfo(
    name="m",
    weights_digest="ab",
    dtype="float32",
    layout="LKTHD",
    kernel_class="c",
    block_tokens=256,
    page_tokens=16,
    layers=2,
    kv_bytes_per_token=64,
    context_tokens=1024,
    vocab=10,
)


class Conductor:
    """Listens to what instances say; may have forgotten them, or be away."""

    def __init__(self) -> None:
        self.registered: list[InstanceInfo] = []
        self.beats: list[Heartbeat] = []
        self.knows = False
        self.address = "127.0.0.1:0"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes(
            [
                web.post("/internal/instances", self._register),
                web.post("/internal/heartbeat", self._beat),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        host, _, port = self.address.rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
        self.address = "{}:{}".format(*runner.addresses[0][:2])
        try:
            yield
        finally:
            await runner.cleanup()

    async def _register(self, request: web.Request) -> web.Response:
        self.registered.append(msgspec.json.decode(await request.read(), type=InstanceInfo))
        self.knows = True
        return web.Response(status=204)

    async def _beat(self, request: web.Request) -> web.Response:
        self.beats.append(msgspec.json.decode(await request.read(), type=Heartbeat))
        return web.Response(status=204 if self.knows else 410)

    async def heard(self, beats: int) -> bool:
        return len(self.beats) >= beats


class Instance:
    """An instance's words and blocks."""

    def __init__(self) -> None:
        self.table = PageTable(8)
        self.cache = PrefixCache(self.table)
        self.peer_id = "1"

    def info(self) -> InstanceInfo:
        return InstanceInfo(
            instance_id="i",
            role="prefill",
            url="http://127.0.0.1:1",
            host_id="h",
            peer_id=self.peer_id,
            model=MODEL,
            pages=8,
            max_batch=1,
            pid=1,
        )

    def store(self, name: bytes) -> None:
        pages = self.table.allocate(1)
        assert pages is not None
        self.cache.insert(name, None, pages)


@pytest.fixture
async def conductor() -> Conductor:
    return Conductor()


@contextlib.asynccontextmanager
async def announced(conductor: Conductor, instance: Instance) -> AsyncIterator[Announcer]:
    peers = Peers()
    announcer = Announcer(peers, conductor.address, instance.info, InstanceLoad, instance.cache)
    task = asyncio.ensure_future(announcer.run())
    try:
        yield announcer
    finally:
        task.cancel()
        await asyncio.wait([task])
        await peers.close()


async def test_a_registration_is_followed_by_a_snapshot_and_then_by_changes(
    conductor: Conductor,
) -> None:
    instance = Instance()
    instance.store(b"a")
    async with conductor.serving(), announced(conductor, instance) as announcer:
        await until(lambda: conductor.heard(1))
        assert len(conductor.registered) == 1
        first = conductor.beats[0].events
        assert first is not None and (first.seq, first.stored) == (0, [b"a".hex()])
        instance.store(b"b")
        announcer.poke()
        await until(lambda: conductor.heard(2))
        second = conductor.beats[1].events
        assert second is not None and (second.seq, second.stored) == (1, [b"b".hex()])


async def test_heartbeats_go_on_when_nothing_changes(conductor: Conductor) -> None:
    async with conductor.serving(), announced(conductor, Instance()):
        await until(lambda: conductor.heard(3))
        assert conductor.beats[2].events is None
        assert len(conductor.registered) == 1


async def test_an_instance_that_was_forgotten_registers_again_with_a_snapshot(
    conductor: Conductor,
) -> None:
    instance = Instance()
    instance.store(b"a")
    async with conductor.serving(), announced(conductor, instance) as announcer:
        await until(lambda: conductor.heard(1))
        conductor.knows = False
        announcer.poke()
        await until(lambda: conductor.heard(3))
        assert len(conductor.registered) == 2
        events = conductor.beats[2].events
        assert events is not None and (events.seq, events.stored) == (0, [b"a".hex()])


async def test_a_new_identity_is_registered_at_once(conductor: Conductor) -> None:
    instance = Instance()
    async with conductor.serving(), announced(conductor, instance) as announcer:
        await until(lambda: conductor.heard(1))
        instance.peer_id = "2"
        announcer.poke()
        await until(lambda: conductor.heard(2))
        assert [info.peer_id for info in conductor.registered] == ["1", "2"]


async def test_a_conductor_that_was_away_hears_all_blocks_when_it_is_back(
    conductor: Conductor,
) -> None:
    instance = Instance()
    async with conductor.serving():
        pass
    async with announced(conductor, instance) as announcer:
        instance.store(b"a")
        announcer.poke()
        async with conductor.serving():
            await until(lambda: conductor.heard(1))
            events = conductor.beats[0].events
            assert events is not None and (events.seq, events.stored) == (0, [b"a".hex()])


@pytest.mark.parametrize("turns", range(4))
async def test_it_ends_when_it_is_told_to_at_the_moment_of_news(
    conductor: Conductor, turns: int
) -> None:
    async with conductor.serving():
        peers = Peers()
        instance = Instance()
        announcer = Announcer(peers, conductor.address, instance.info, InstanceLoad, instance.cache)
        task = asyncio.ensure_future(announcer.run())
        await until(lambda: conductor.heard(1))
        announcer.poke()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.done()
        await peers.close()
