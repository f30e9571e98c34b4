"""Instances whose model computes on other memory than the pages that others read and write.

The device is a second pool in host memory that holds garbage at first, so that whatever the model
reads and nobody brought there shows in the answer; the code is the one that a GPU runs.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from serving import (
    BLOCK,
    Asker,
    Server,
    decode_config,
    model_config,
    plain_answer,
    prefill_config,
    prompt_of,
    reference_model,
    running,
    until,
)

from mooncake_core.cache.kv_pool import KvPool, KvShape
from mooncake_core.cache.lane import Lane
from mooncake_core.cache.layerwise import BlockWriter, LayerLoader
from mooncake_core.cache.mirror import KvMirror
from mooncake_core.config import MasterConfig, StoreClientConfig, StoreConfig, TransferConfig
from mooncake_core.errors import ConfigError, MooncakeError
from mooncake_core.messages import Finished, Reserved
from mooncake_core.model.base import Model, SequenceInput
from mooncake_core.store import StoreClient
from mooncake_core.store.master_service import serve_master
from mooncake_core.store.node_service import serve_store
from mooncake_core.transfer import TransferEngine
from mooncake_core.worker.decode_service import serve_decode
from mooncake_core.worker.prefill_service import serve_prefill
from mooncake_core.worker.runtime import Runtime

STEPS = 20
"""More than a page."""


@dataclass
class Sides:
    """The two pools of an instance, taken when it makes them."""

    host: KvPool | None = None
    device: KvPool | None = None

    def make_pool(self, host: KvPool, _: torch.device) -> KvPool:
        self.host, self.device = host, garbage_pool(host)
        return self.device

    def copies(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bytes of both: [layers, 2, tokens, bytes of a token]."""
        assert self.host is not None and self.device is not None
        return rows_of(self.host), rows_of(self.device)


def garbage_pool(host: KvPool) -> KvPool:
    """Return a pool like `host` whose numbers are all NaN."""
    storage = torch.full((host.size_bytes,), 0xFF, dtype=torch.uint8)
    return KvPool(host.shape, host.pages, storage)


def rows_of(pool: KvPool) -> torch.Tensor:
    """Return a copy of the bytes: [layers, 2, slots, bytes of a token]."""
    layers = range(pool.shape.layers)
    rows = [torch.stack((pool.keys(layer), pool.values(layer))).flatten(2) for layer in layers]
    return torch.stack(rows).view(torch.uint8)


def plain_kv(model: Model, prompt: Sequence[int]) -> torch.Tensor:
    """Return the bytes of a prompt's KV, as one process computes it: as `rows_of`."""
    pages = list(range(-(-len(prompt) // 16)))
    pool = KvPool(model.kv_shape, len(pages))
    for begin in range(0, len(prompt), BLOCK):
        part = prompt[begin : begin + BLOCK]
        sequence = SequenceInput(pages=pages, start=begin, length=len(part))
        model.forward(torch.tensor(part), [sequence], pool)
    return rows_of(pool)[:, :, : len(prompt)]


@dataclass
class World:
    """A master, a store node, two prefill instances and a decode instance, all mirrored."""

    prefills: list[str]
    decode: str
    sides: list[Sides]
    """Of the prefill instances, then of decode."""
    model: Model
    asker: Asker

    async def cached(self, which: int, prompt: list[int]) -> tuple[int, int]:
        """Check an answer; return the tokens found in own pages and in the store."""
        answer = await self.asker.ask(self.prefills[which], self.decode, prompt, STEPS)
        assert answer.tokens == plain_answer(self.model, prompt, STEPS), answer
        assert answer.end == Finished(reason="length", completion_tokens=STEPS)
        assert answer.result is not None
        return answer.result.local_tokens, answer.result.store_tokens

    async def is_idle(self) -> bool:
        loads = [(await self.asker.status(url))["load"] for url in (*self.prefills, self.decode)]
        return not any(load["reserved_pages"] for load in loads)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    model, sides = model_config(tmp_path), [Sides(), Sides(), Sides()]
    prefills = [partial(serve_prefill, make_pool=side.make_pool) for side in sides[:2]]
    decode = partial(serve_decode, make_pool=sides[2].make_pool)
    master = MasterConfig(listen="127.0.0.1:0", admin="127.0.0.1:0")
    async with running((serve_master, master)) as (pool,):
        address = pool.addresses["rpc"]
        config = prefill_config(model, pool=StoreClientConfig(master=address, timeout_s=2.0))
        daemons = [
            (serve_store, StoreConfig(master=address, capacity="64 MiB")),
            *((serve, config) for serve in prefills),
            (decode, decode_config(model)),
        ]
        async with running(*daemons) as (_, *servers), Asker() as asker:
            urls = [server.url for server in servers]
            try:
                yield World(urls[:2], urls[2], sides, reference_model(model), asker)
            finally:
                for side in sides:
                    side.host = None  # the segment under it goes with its instance


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 255, 256, 257, 511, 512, 513, 700])
async def test_an_answer_is_the_plain_one_whatever_was_cached_where(
    world: World, tokens: int
) -> None:
    prompt, reused = prompt_of(tokens), (tokens - 1) // BLOCK * BLOCK
    assert await world.cached(0, prompt) == (0, 0)
    assert await world.cached(0, prompt) == (reused, 0)
    await until(world.is_idle)
    assert await world.cached(1, prompt) == (0, reused)
    assert await world.cached(1, prompt) == (reused, 0)


async def test_own_pages_and_the_store_are_joined(world: World) -> None:
    prompt = prompt_of(1100)
    await world.cached(1, prompt[:300])
    await world.cached(0, prompt)
    await until(world.is_idle)
    assert await world.cached(1, prompt) == (256, 768)


async def test_sequences_of_a_batch_keep_their_tokens(world: World) -> None:
    prompts = [prompt_of(40 + 60 * i, seed=i) for i in range(6)]
    await asyncio.gather(*[world.cached(i % 2, prompt) for i, prompt in enumerate(prompts)])


async def answer_of(world: World, which: int, prompt: list[int]) -> list[int]:
    """Have a prompt answered; return the pages that decode had for it."""
    async with world.asker.reserve(world.prefills[which], world.decode, prompt) as stream:
        assert isinstance(stream.first, Reserved), stream.first
        request = stream.prefill_request(prompt)
        status, body = await world.asker.post(f"{world.prefills[which]}/v1/prefill", request)
        assert status == 200, body
        events = [event async for event in stream.events()]
        assert isinstance(events[-1], Finished), events
        return stream.first.pages


async def test_host_pages_hold_the_bytes_of_the_device(world: World) -> None:
    prompt = prompt_of(700)
    expected = plain_kv(world.model, prompt)
    for which in (0, 0, 1):
        pages = await answer_of(world, which, prompt)
        slots = [page * 16 + place for page in pages for place in range(16)][:700]
        for side in world.sides[2].copies():
            assert torch.equal(side[:, :, slots], expected)
        host, device = world.sides[which].copies()
        written = (host != 0).any(3).any(1).any(0)
        assert written.sum() >= 700
        assert torch.equal(host[:, :, written], device[:, :, written])
        await until(world.is_idle)


LAYERS, BLOCK_PAGES, BLOCKS, FIRST_BLOCKS = 4, 2, 6, 3
SHAPE = KvShape(layers=LAYERS, kv_heads=2, head_dim=8, dtype=torch.float32)
NAMES = [bytes([index]) * 16 for index in range(BLOCKS)]
PAGES = [*range(5, 12), *range(5)]
OnLayer = Callable[[int, int], None]


@contextlib.contextmanager
def client_with_pool(master: str) -> Iterator[tuple[StoreClient, list[KvPool]]]:
    """Yield a client of a store and, in a list, a pool that it may read into and write from."""
    pages = BLOCKS * BLOCK_PAGES
    with (
        contextlib.closing(TransferEngine(TransferConfig(same_host="network"))) as engine,
        contextlib.closing(StoreClient(engine, StoreClientConfig(master=master))) as client,
        contextlib.closing(engine.create_segment(SHAPE.pool_bytes(pages))) as segment,
    ):
        storage = torch.frombuffer(segment.buffer, dtype=torch.uint8)
        pools = [KvPool(SHAPE, pages, storage)]
        del storage
        yield client, pools
        pools.clear()


async def store_blocks(client: StoreClient, pool: KvPool, indices: range) -> None:
    """Store blocks of a sequence that lies in the pages of `pool` in order."""
    lane, errors, tokens = Lane("store", depth=64), list[MooncakeError](), BLOCK_PAGES * 16
    for index in indices:
        writer = BlockWriter(
            client,
            NAMES[: index + 1],
            lane,
            pool,
            range(pool.pages),
            begin=index * tokens,
            end=(index + 1) * tokens,
            on_error=errors.append,
        )
        for layer in range(LAYERS):
            writer.layer_done(layer)
    lane.close()
    await asyncio.wrap_future(lane.done)
    assert not errors


async def wait_for_nodes(client: StoreClient, count: int) -> None:
    async def are_there() -> bool:
        return len(client.stats().nodes) == count

    await until(are_there)


async def load(client: StoreClient, mirror: KvMirror, on_layer: OnLayer) -> LayerLoader:
    """Load all blocks to `PAGES`, with nobody waiting for a layer."""
    reader = client.open_read(NAMES)
    loader = LayerLoader(
        reader, mirror, PAGES, first_token=0, block_tokens=BLOCK_PAGES * 16, on_layer=on_layer
    )
    await asyncio.to_thread(loader.join)
    return loader


def check_pages(mirror: KvMirror, source: KvPool, blocks: int) -> None:
    """Assert that both sides hold the first `blocks` blocks."""
    count = blocks * BLOCK_PAGES
    for layer in range(LAYERS):
        for pool in (mirror.host, mirror.device):
            expected = source.layer(layer)[:, :count]
            assert torch.equal(pool.layer(layer)[:, PAGES[:count]], expected)


async def check_loads(client: StoreClient, source: KvPool, host: KvPool, node: Server) -> None:
    """Load blocks, and again while `node`, which has some of them, goes away after a layer."""
    loop, mirror = asyncio.get_running_loop(), KvMirror(host, garbage_pool(host))
    loader = await load(client, mirror, lambda layer, end: None)
    assert loader.good_blocks == BLOCKS
    check_pages(mirror, source, BLOCKS)

    def on_layer(layer: int, _: int) -> None:
        if layer == 0:
            asyncio.run_coroutine_threadsafe(node.close(), loop).result()

    for layer in range(LAYERS):
        host.layer(layer).zero_()
    mirror = KvMirror(host, garbage_pool(host))
    loader = await load(client, mirror, on_layer)
    # How many of the later blocks the node had is the master's choice.
    assert FIRST_BLOCKS <= loader.good_blocks < BLOCKS
    check_pages(mirror, source, loader.good_blocks)


async def test_what_was_loaded_is_on_both_sides_though_nobody_waited() -> None:
    master = MasterConfig(listen="127.0.0.1:0", admin="127.0.0.1:0")
    async with running((serve_master, master)) as (served,):
        address = served.addresses["rpc"]
        node = StoreConfig(master=address, capacity="16 MiB")
        with (
            client_with_pool(address) as (writer, sources),
            client_with_pool(address) as (client, targets),
        ):
            for layer in range(LAYERS):
                sources[0].layer(layer).normal_()
            async with running((serve_store, node)):
                await wait_for_nodes(writer, 1)
                await store_blocks(writer, sources[0], range(FIRST_BLOCKS))
                async with running((serve_store, node)) as (second,):
                    await wait_for_nodes(writer, 2)
                    await store_blocks(writer, sources[0], range(FIRST_BLOCKS, BLOCKS))
                    await check_loads(client, sources[0], targets[0], second)


def test_a_cuda_device_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    model = msgspec.structs.replace(model_config(tmp_path), device="cuda:99")
    with pytest.raises(ConfigError, match=r"model\.device: 'cuda:99' is not here"):
        Runtime(prefill_config(model), BLOCK)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
async def test_a_gpu_gives_the_plain_answer(tmp_path: Path) -> None:
    model = msgspec.structs.replace(model_config(tmp_path), device="cuda")
    daemons = ((serve_prefill, prefill_config(model)), (serve_decode, decode_config(model)))
    async with running(*daemons) as (prefill, decode), Asker() as asker:
        prompt = prompt_of(300)
        for reused in (0, BLOCK):
            answer = await asker.ask(prefill.url, decode.url, prompt, STEPS)
            assert answer.tokens == plain_answer(reference_model(model), prompt, STEPS)
            assert answer.result is not None and answer.result.local_tokens == reused
