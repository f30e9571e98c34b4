"""A conductor on a real socket, in this process, with instances that do as they are told."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web

from mooncake_core.clock import monotonic_s
from mooncake_core.conductor.cluster import Cluster
from mooncake_core.conductor.dispatch import Dispatcher
from mooncake_core.conductor.gateway import Parts
from mooncake_core.conductor.metrics import ConductorMetrics
from mooncake_core.conductor.server import application
from mooncake_core.conductor.store_lookup import BlockStore, StoreLookup
from mooncake_core.config.tables import ConductorConfig
from mooncake_core.errors import StoreUnavailable
from mooncake_core.tokenizer import load_tokenizer
from tests.conductor.peer import Peer, landings

VOCAB = 300


def no_store() -> BlockStore:
    """Connect to a store that is away."""
    raise StoreUnavailable("no master")


async def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 10.0) -> None:
    """Return when `condition` is true; fail at the deadline."""
    deadline_s = monotonic_s() + timeout_s
    while not condition():
        assert monotonic_s() < deadline_s, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.005)


@dataclass
class World:
    """A conductor and its instances."""

    url: str
    parts: Parts
    http: aiohttp.ClientSession
    client: openai.AsyncOpenAI
    peers: dict[str, Peer] = field(default_factory=dict)
    landed: Any = field(default_factory=landings)

    async def add(self, *ids: str) -> None:
        """Start and register instances; p… are prefill, d… are decode."""
        for name in ids:
            peer = Peer(name, "prefill" if name.startswith("p") else "decode", self.landed)
            self.peers[name] = peer
            await peer.start()
            assert await peer.register(self.url, model={"vocab": VOCAB}) == 204

    async def chat(self, text: str = "hi", **fields: Any) -> Any:
        """Ask without streaming."""
        return await self.client.chat.completions.create(
            model="toy", messages=[{"role": "user", "content": text}], **fields
        )

    async def post(self, path: str, **fields: Any) -> tuple[int, dict[str, Any], Any]:
        """POST and return status, JSON and headers."""
        async with self.http.post(f"{self.url}{path}", **fields) as response:
            return response.status, await response.json(), response.headers

    async def metric(self, line: str) -> float:
        """Return the value of one sample, 0 if it is not there."""
        async with self.http.get(f"{self.url}/metrics") as response:
            for text in (await response.text()).splitlines():
                if text.startswith(line + " "):
                    return float(text.split()[-1])
        return 0.0

    def is_idle(self) -> bool:
        """Whether nothing is held anywhere any more."""
        view = self.parts.cluster.view(monotonic_s())
        return (
            self.parts.dispatcher.in_flight == 0
            and all(peer.open_calls == 0 for peer in self.peers.values())
            and all(p.queue_s < 1e-6 for p in view.prefills)
            and all(d.running == 0 and d.free_pages == d.pages for d in view.decodes)
        )


@pytest.fixture
def config() -> ConductorConfig:
    """What the conductor under test is configured with; override to change."""
    return ConductorConfig(
        instance_ttl_s=60, request_timeout_s=20, max_body="64 KiB", default_max_tokens=32
    )


@pytest.fixture
def connect() -> Callable[[], BlockStore]:
    """How the conductor under test reaches the store; override to change."""
    return no_store


@pytest.fixture
async def world(
    config: ConductorConfig, connect: Callable[[], BlockStore], tmp_path: Path
) -> AsyncIterator[World]:
    """A conductor without instances, whose model writes bytes."""
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": VOCAB}))
    cluster = Cluster(
        slo=config.slo,
        balancing_threshold=config.balancing_threshold,
        instance_ttl_s=config.instance_ttl_s,
    )
    session = aiohttp.ClientSession()
    parts = Parts(
        config=config,
        model_name="toy",
        tokenizer=load_tokenizer(tmp_path),
        cluster=cluster,
        dispatcher=Dispatcher(cluster, session, monotonic_s, random.Random(1).random),
        store=StoreLookup(connect),
        metrics=ConductorMetrics(cluster, monotonic_s),
        clock=monotonic_s,
    )
    runner = web.AppRunner(application(parts), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    url = f"http://{host}:{port}"
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)
    world = World(url=url, parts=parts, http=aiohttp.ClientSession(), client=client)
    yield world
    await client.close()
    await world.http.close()
    await runner.cleanup()
    await session.close()
    for peer in world.peers.values():
        await peer.stop()
    await parts.store.close()
