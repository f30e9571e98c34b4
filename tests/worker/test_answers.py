"""Prefill and decode apart give the answer that one process gives, whatever was cached where."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from serving import (
    BLOCK,
    Answer,
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

from mooncake_core.blocks import block_names
from mooncake_core.config import MasterConfig, StoreClientConfig, StoreConfig, TransferConfig
from mooncake_core.messages import Failed, Finished, ModelInfo, Sampling, kv_identity
from mooncake_core.model.base import Model
from mooncake_core.store import StoreClient
from mooncake_core.store.master_service import serve_master
from mooncake_core.store.node_service import serve_store
from mooncake_core.transfer import TransferEngine
from mooncake_core.worker.decode_service import serve_decode
from mooncake_core.worker.prefill_service import serve_prefill


@dataclass
class World:
    """A master, a store node, two prefill instances and a decode instance."""

    pool: StoreClientConfig
    node: StoreConfig
    store: Server
    prefills: list[str]
    decode: str
    model: Model
    asker: Asker

    async def check(
        self, which: int, prompt: list[int], count: int = 6, sampling: Sampling | None = None
    ) -> Answer:
        """Ask one of the prefill instances; the answer must be the plain one."""
        sampling = sampling or Sampling(temperature=0)
        answer = await self.asker.ask(
            self.prefills[which], self.decode, prompt, count, sampling=sampling
        )
        assert answer.tokens == plain_answer(self.model, prompt, count, sampling), answer
        assert answer.end == Finished(reason="length", completion_tokens=count)
        return answer

    async def cached(self, which: int, prompt: list[int]) -> tuple[int, int]:
        """Check an answer; return the tokens found in own pages and in the store."""
        result = (await self.check(which, prompt)).result
        assert result is not None
        assert result.cached_tokens == result.local_tokens + result.store_tokens
        return result.local_tokens, result.store_tokens

    async def names(self, prompt: list[int]) -> list[bytes]:
        """Return the names of a prompt's blocks."""
        info = (await self.asker.status(self.prefills[0]))["instance"]["model"]
        namespace = kv_identity(msgspec.convert(info, ModelInfo)).namespace()
        return block_names(namespace, prompt, BLOCK)

    async def is_idle(self) -> bool:
        for url in self.prefills:
            load = (await self.asker.status(url))["load"]
            if load["reserved_pages"] or load["running"]:
                return False
        load = (await self.asker.status(self.decode))["load"]
        return not (load["reserved_pages"] or load["quarantined_pages"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    model = model_config(tmp_path)
    master = MasterConfig(listen="127.0.0.1:0", admin="127.0.0.1:0")
    async with running((serve_master, master)) as (pool,):
        address = pool.addresses["rpc"]
        client = StoreClientConfig(master=address, timeout_s=2.0)
        prefill = prefill_config(model, pool=client)
        node = StoreConfig(master=address, capacity="64 MiB")
        async with (
            running(
                (serve_store, node),
                (serve_prefill, prefill),
                (serve_prefill, prefill),
                (serve_decode, decode_config(model)),
            ) as (store, first, second, decode),
            Asker() as asker,
        ):
            yield World(
                client,
                node,
                store,
                [first.url, second.url],
                decode.url,
                reference_model(model),
                asker,
            )


@pytest.mark.parametrize("tokens", [1, 15, 255, 256, 257, 700])
async def test_an_answer_is_that_of_one_process(world: World, tokens: int) -> None:
    assert await world.cached(0, prompt_of(tokens)) == (0, 0)


@pytest.mark.parametrize(("tokens", "reused"), [(256, 0), (257, 256), (700, 512), (768, 512)])
async def test_a_second_request_reuses_whole_blocks_from_own_pages(
    world: World, tokens: int, reused: int
) -> None:
    await world.check(0, prompt_of(tokens))
    assert await world.cached(0, prompt_of(tokens)) == (reused, 0)


@pytest.mark.parametrize(("tokens", "reused"), [(256, 0), (257, 256), (700, 512), (768, 512)])
async def test_another_instance_reuses_the_blocks_from_the_store(
    world: World, tokens: int, reused: int
) -> None:
    await world.check(0, prompt_of(tokens))
    await until(world.is_idle)
    assert await world.cached(1, prompt_of(tokens)) == (0, reused)


async def test_own_pages_come_first_and_the_store_goes_on_behind_them(world: World) -> None:
    prompt = prompt_of(1100)
    await world.check(1, prompt[:300])
    await world.check(0, prompt)
    await until(world.is_idle)
    assert await world.cached(1, prompt) == (256, 768)


async def test_what_only_own_pages_have_is_stored_again(world: World) -> None:
    prompt = prompt_of(600)
    await world.check(0, prompt)
    await until(world.is_idle)
    await world.store.close()
    with (
        contextlib.closing(TransferEngine(TransferConfig())) as engine,
        contextlib.closing(StoreClient(engine, world.pool)) as client,
    ):

        async def has(blocks: int) -> bool:
            await world.check(0, prompt)
            return client.match_prefix(await world.names(prompt)) == blocks

        await until(lambda: has(0))
        async with running((serve_store, world.node)):
            await until(lambda: has(2))


async def test_another_prompt_after_the_same_prefix_reuses_the_prefix(world: World) -> None:
    prefix = prompt_of(3 * BLOCK)
    await world.check(0, prefix + prompt_of(30, seed=1))
    await until(world.is_idle)
    assert await world.cached(1, prefix + prompt_of(20, seed=2)) == (0, 3 * BLOCK)


async def test_equal_blocks_behind_other_tokens_are_not_reused(world: World) -> None:
    tail = prompt_of(2 * BLOCK)
    await world.check(0, prompt_of(BLOCK, seed=1) + tail)
    assert await world.cached(0, prompt_of(BLOCK, seed=2) + tail) == (0, 0)


async def test_sampled_answers_depend_on_the_seed_alone(world: World) -> None:
    sampling = Sampling(temperature=1.2, top_p=0.9, seed=5)
    await world.check(0, prompt_of(300), 12, sampling)
    await world.check(1, prompt_of(300), 12, sampling)


async def test_a_stop_token_ends_an_answer(world: World) -> None:
    prompt = prompt_of(40)
    plain = plain_answer(world.model, prompt, 8)
    stop = plain[3]
    expected = plain[: plain.index(stop) + 1]
    answer = await world.asker.ask(
        world.prefills[0], world.decode, prompt, 8, stop_token_ids=[stop]
    )
    assert answer.tokens == expected
    assert answer.end == Finished(reason="stop", completion_tokens=len(expected))


async def test_an_answer_of_one_token_needs_no_step(world: World) -> None:
    await world.check(0, prompt_of(40), 1)
    assert await world.asker.metric(world.decode, "mooncake_decode_batch_size_count") == 0


async def test_concurrent_requests_run_in_one_batch_and_end_as_if_alone(world: World) -> None:
    prompts = [prompt_of(40 + 60 * i, seed=i) for i in range(8)]
    await asyncio.gather(*[world.check(i % 2, prompt, 24) for i, prompt in enumerate(prompts)])
    steps = await world.asker.metric(world.decode, "mooncake_decode_batch_size_count")
    tokens = await world.asker.metric(world.decode, "mooncake_decode_tokens_total")
    assert tokens == 8 * 23
    assert tokens / steps > 1.5
    assert await world.asker.metric(world.decode, 'mooncake_decode_batch_size_bucket{le="4.0"}')
    await until(world.is_idle)


async def test_pages_that_are_needed_are_taken_from_idle_prefixes(world: World) -> None:
    for seed in range(6):
        assert await world.cached(0, prompt_of(2000, seed=seed)) == (0, 0)
    await until(world.is_idle)
    local, stored = await world.cached(0, prompt_of(2000, seed=0))
    assert local + stored == 7 * BLOCK
    assert stored > 0


async def test_a_lost_store_node_costs_time_and_no_answer(world: World) -> None:
    prompt = prompt_of(900)
    await world.check(0, prompt)
    await until(world.is_idle)
    await world.store.close()
    await world.check(1, prompt)
    await world.check(0, prompt_of(500, seed=3))
    await until(world.is_idle)


async def test_an_object_of_another_size_under_a_block_name_is_not_used(world: World) -> None:
    prompt = prompt_of(600)
    with (
        contextlib.closing(TransferEngine(TransferConfig())) as engine,
        contextlib.closing(StoreClient(engine, world.pool)) as client,
    ):
        for name in await world.names(prompt):
            assert client.put(name, b"no KV")
    assert await world.cached(0, prompt) == (0, 0)
    assert await world.cached(0, prompt) == (512, 0)
    await until(world.is_idle)


BAD_PREFILLS = {
    "no JSON": b"{",
    "another field": b'{"nonsense": 1}',
    "a list": b"[]",
}


@pytest.mark.parametrize("body", BAD_PREFILLS.values(), ids=BAD_PREFILLS.keys())
@pytest.mark.parametrize("path", ["v1/decode", "v1/landed", "v1/released"])
async def test_what_is_no_message_is_answered_so(world: World, path: str, body: bytes) -> None:
    for url in (f"{world.decode}/{path}", f"{world.prefills[0]}/v1/prefill"):
        status, answer = await world.asker.post(url, body)
        assert status == 400
        failed = msgspec.json.decode(answer, type=Failed)
        assert failed.kind == "RequestError" and not failed.retryable


async def test_a_body_that_is_not_compressed_as_it_says_is_refused(world: World) -> None:
    async with world.asker.session.post(
        f"{world.decode}/v1/decode", data=b"{}", headers={"Content-Encoding": "gzip"}
    ) as response:
        assert response.status == 400
        failed = msgspec.json.decode(await response.read(), type=Failed)
    assert failed.kind == "RequestError" and not failed.retryable


async def test_a_prompt_outside_the_vocabulary_is_refused_and_pages_return(world: World) -> None:
    answer = await world.asker.ask(world.prefills[0], world.decode, [5, 320, 7])
    assert isinstance(answer.end, Failed) and not answer.end.retryable
    assert "320" in answer.end.error
    await until(world.is_idle)


async def test_a_prompt_that_fits_no_context_is_refused(world: World) -> None:
    answer = await world.asker.ask(world.prefills[0], world.decode, prompt_of(4095), 2)
    assert isinstance(answer.end, Failed) and not answer.end.retryable
    assert "4096" in answer.end.error
