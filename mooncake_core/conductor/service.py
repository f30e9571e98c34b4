"""The conductor as a process: sockets, time, and what stands on them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import aiohttp
import msgspec
from aiohttp import web

from mooncake_core.clock import monotonic_s
from mooncake_core.conductor.cluster import Cluster
from mooncake_core.conductor.dispatch import Dispatcher
from mooncake_core.conductor.gateway import Parts
from mooncake_core.conductor.metrics import ConductorMetrics
from mooncake_core.conductor.server import application
from mooncake_core.conductor.store_lookup import StoreLookup
from mooncake_core.config.tables import ConductorConfig, StoreClientConfig, TransferConfig
from mooncake_core.listening import IDLE_S, address_of, bind
from mooncake_core.model_spec.checkpoint import model_name, prepare_checkpoint
from mooncake_core.store import StoreClient
from mooncake_core.tokenizer import load_tokenizer
from mooncake_core.transfer import TransferEngine

log = logging.getLogger(__name__)

_STORE_TIMEOUT_S = 1.0
_DRAIN_S = 2.0
"""How long answers in progress may still take when the conductor stops."""


async def serve_conductor(
    config: ConductorConfig, *, ready: Callable[[dict[str, str]], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set.

    Args:
        config: of this process.
        ready: called once, with {"http": "host:port"}, when requests are answered.
        stop: ends it.

    Raises:
        ConfigError: it cannot listen there.
        ModelError: the model's files cannot be used.
    """
    folder = await asyncio.to_thread(prepare_checkpoint, config.model.path)
    tokenizer = await asyncio.to_thread(load_tokenizer, folder)
    cluster = Cluster(
        slo=config.slo,
        balancing_threshold=config.balancing_threshold,
        instance_ttl_s=config.instance_ttl_s,
        tokenizer_vocab=tokenizer.vocab,
    )
    engine = await asyncio.to_thread(TransferEngine, TransferConfig())
    try:
        store = StoreLookup(lambda: StoreClient(engine, _pool(config)))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            parts = Parts(
                config=config,
                model_name=model_name(config.model),
                tokenizer=tokenizer,
                cluster=cluster,
                dispatcher=Dispatcher(cluster, session, monotonic_s, random.random),
                store=store,
                metrics=ConductorMetrics(cluster, monotonic_s),
                clock=monotonic_s,
            )
            try:
                await _serve(parts, ready, stop)
            finally:
                await store.close()
    finally:
        await asyncio.to_thread(engine.close)


async def _serve(
    parts: Parts, ready: Callable[[dict[str, str]], None], stop: asyncio.Event
) -> None:
    runner = web.AppRunner(
        application(parts),
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=IDLE_S,
        shutdown_timeout=_DRAIN_S,
    )
    await runner.setup()
    try:
        sock = bind(parts.config.listen, "listen")
        await web.SockSite(runner, sock).start()
        ready({"http": address_of(sock)})
        await _watch(parts, stop)
    finally:
        await runner.cleanup()


async def _watch(parts: Parts, stop: asyncio.Event) -> None:
    """Notice instances that have gone silent, until `stop` is set."""
    while not stop.is_set():
        try:
            await asyncio.wait_for(stop.wait(), parts.config.instance_ttl_s / 4)
        except asyncio.TimeoutError:
            for instance_id in parts.cluster.expire(parts.clock()):
                log.warning("instance %s has gone silent and is forgotten", instance_id)
                parts.dispatcher.lost(instance_id)


def _pool(config: ConductorConfig) -> StoreClientConfig:
    """Return how to use the store: a lookup that takes long is not worth its wait."""
    timeout_s = min(config.pool.timeout_s, _STORE_TIMEOUT_S)
    return msgspec.structs.replace(config.pool, timeout_s=timeout_s)
