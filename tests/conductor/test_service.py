"""The conductor as a process would run it: real tokenizer, real store client, real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from mooncake_core.conductor.service import serve_conductor
from mooncake_core.conductor.store_lookup import BlockStore, StoreLookup
from mooncake_core.config import ConductorConfig, ModelConfig, StoreClientConfig
from mooncake_core.errors import ConfigError, StoreUnavailable
from tests.conductor.peer import Peer, landings

NOBODY = StoreClientConfig(master="127.0.0.1:1", timeout_s=0.2)


@pytest.fixture
def config(tmp_path: Path) -> ConductorConfig:
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "vocab_size": 300,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "max_position_embeddings": 8192,
                "rms_norm_eps": 1e-5,
            }
        )
    )
    return ConductorConfig(
        listen="127.0.0.1:0",
        model=ModelConfig(path=f"dummy:{file}", name="toy"),
        pool=NOBODY,
        instance_ttl_s=0.2,
    )


@asynccontextmanager
async def running(config: ConductorConfig) -> AsyncIterator[str]:
    """Run a conductor and yield its URL."""
    bound: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    service = asyncio.ensure_future(serve_conductor(config, ready=bound.set_result, stop=stop))
    await asyncio.wait([service, bound], return_when="FIRST_COMPLETED")
    if service.done():
        service.result()
    try:
        yield f"http://{bound.result()['http']}"
    finally:
        stop.set()
        await asyncio.wait_for(service, 10)


async def test_it_serves_before_any_instance_is_there_and_without_a_store(
    config: ConductorConfig,
) -> None:
    async with running(config) as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/v1/models") as response:
            assert [m["id"] for m in (await response.json())["data"]] == ["toy"]
        async with http.get(f"{url}/status") as response:
            status = await response.json()
        assert status["members"] == [] and status["store"] is None


async def test_a_request_is_served_without_a_store(config: ConductorConfig) -> None:
    landed = landings()
    peers = [Peer("p0", "prefill", landed), Peer("d0", "decode", landed)]
    async with running(config) as url, aiohttp.ClientSession() as http:
        for peer in peers:
            await peer.start()
            assert await peer.register(url, model={"vocab": 300}) == 204
        body = {"model": "toy", "prompt": "x" * 600}
        async with http.post(f"{url}/v1/completions", json=body) as response:
            assert (await response.json())["choices"][0]["text"] == "hello world"
        for peer in peers:
            await peer.stop()


async def test_silent_instances_are_dropped(config: ConductorConfig) -> None:
    peer = Peer("p0", "prefill", landings())
    async with running(config) as url, aiohttp.ClientSession() as http:
        await peer.start()
        assert await peer.register(url, model={"vocab": 300}) == 204

        async def members() -> list[str]:
            async with http.get(f"{url}/status") as response:
                return [m["instance_id"] for m in (await response.json())["members"]]

        async def dropped() -> None:
            while await members():
                pass

        await asyncio.wait_for(dropped(), 10)
        await peer.stop()


async def test_an_address_in_use_is_named(config: ConductorConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = ConductorConfig(listen=address, model=config.model, pool=NOBODY)
        with pytest.raises(
            ConfigError, match=f"^listen: listen on {address}: Address already in use"
        ):
            async with running(config):
                pass


def test_it_loads_no_torch() -> None:
    code = "import sys, mooncake_core.conductor.service; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


class TestStoreLookup:
    """A lookup neither fails nor waits for a store that is away."""

    @pytest.fixture
    async def lookup(self) -> AsyncIterator[Callable[[Callable[[], BlockStore]], StoreLookup]]:
        made: list[StoreLookup] = []

        def make(connect: Callable[[], BlockStore]) -> StoreLookup:
            made.append(StoreLookup(connect))
            return made[-1]

        yield make
        for one in made:
            await one.close()

    async def test_a_store_that_is_away_has_nothing(
        self, lookup: Callable[[Callable[[], BlockStore]], StoreLookup]
    ) -> None:
        def away() -> BlockStore:
            raise StoreUnavailable("no master")

        asked = lookup(away)
        assert await asked.match([b"x" * 16]) == 0
        assert await asked.stats() is None
        assert asked.failures == 2

    async def test_a_store_that_hangs_is_waited_for_shortly_and_by_few(
        self, lookup: Callable[[Callable[[], BlockStore]], StoreLookup]
    ) -> None:
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hangs() -> BlockStore:
            asyncio.run_coroutine_threadsafe(answered.wait(), loop).result()
            raise StoreUnavailable("too late")

        asked = lookup(hangs)
        began_s = loop.time()
        assert await asyncio.gather(*[asked.match([b"x" * 16]) for _ in range(50)]) == [0] * 50
        assert loop.time() - began_s < 5
        answered.set()
