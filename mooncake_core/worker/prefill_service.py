"""The prefill daemon: HTTP around `Prefill`."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from mooncake_core.cache.mirror import device_pool
from mooncake_core.clock import monotonic_s
from mooncake_core.config import PrefillConfig
from mooncake_core.messages import InstanceInfo, PrefillRequest
from mooncake_core.store import StoreClient
from mooncake_core.worker.http import Peers, answer, read_message
from mooncake_core.worker.instance import Instance, Ready
from mooncake_core.worker.metrics import PrefillMetrics
from mooncake_core.worker.prefill import Prefill
from mooncake_core.worker.runtime import MakePool, Runtime
from mooncake_core.worker.store_port import StorePort


async def serve_prefill(
    config: PrefillConfig, *, ready: Ready, stop: asyncio.Event, make_pool: MakePool = device_pool
) -> None:
    """Run a prefill instance until `stop` is set.

    Args:
        config: of the instance.
        ready: called once, when it serves.
        stop: set by the caller.
        make_pool: see `Runtime`.

    Raises:
        ConfigError: an address cannot be bound, or a value does not fit the others.
        ModelError: the model cannot be loaded.
    """
    instance = Instance(config, "prefill")
    with instance.sock:
        runtime = await asyncio.to_thread(Runtime, config, config.block_tokens, make_pool)
        try:
            store = await asyncio.to_thread(StoreClient, runtime.engine, config.pool)
            try:
                await _serve(instance, runtime, store, ready=ready, stop=stop)
            finally:
                await asyncio.to_thread(store.close)
        finally:
            await asyncio.to_thread(runtime.close)


async def _serve(
    instance: Instance,
    runtime: Runtime,
    store: StoreClient,
    *,
    ready: Ready,
    stop: asyncio.Event,
) -> None:
    metrics, peers = PrefillMetrics(runtime.table), Peers()
    calibrated = await runtime.calibrate()

    def info() -> InstanceInfo:
        return instance.info(runtime, max_batch=1, tokens_per_s=calibrated)

    prefill = Prefill(
        runtime,
        StorePort(store, monotonic_s),
        peers,
        metrics,
        tokens_per_s=calibrated,
        on_news=lambda: announcer.poke(),  # noqa: PLW0108  made below
    )
    announcer = instance.announcer(peers, info, lambda: prefill.load, prefill.cache)
    _show(metrics, prefill)

    def status() -> dict[str, Any]:
        return {"instance": info(), "load": prefill.load, "cached_blocks": len(prefill.cache)}

    async def serve_request(request: web.Request) -> web.Response:
        return answer(await prefill.run(await read_message(request, PrefillRequest)))

    handlers = {"/v1/prefill": serve_request}
    work = [announcer.run()]
    try:
        await instance.serve(handlers, status, metrics, work, ready=ready, stop=stop)
    finally:
        await prefill.close()
        await peers.close()


def _show(metrics: PrefillMetrics, prefill: Prefill) -> None:
    metrics.gauge(
        "mooncake_prefill_queue", "Requests in line", lambda: prefill.load.queued_requests
    )
    metrics.gauge(
        "mooncake_prefill_queue_tokens", "Tokens to compute", lambda: prefill.load.queued_tokens
    )
    metrics.gauge(
        "mooncake_prefill_running", "Requests being computed", lambda: prefill.load.running
    )
    metrics.gauge("mooncake_prefill_tokens_per_s", "Speed of compute", lambda: prefill.tokens_per_s)
    metrics.gauge("mooncake_prefill_cached_blocks", "In own pages", lambda: len(prefill.cache))
