"""The decode daemon: HTTP around `Decode`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from aiohttp import web

from mooncake_core.cache.mirror import device_pool
from mooncake_core.clock import monotonic_s
from mooncake_core.config import DecodeConfig
from mooncake_core.errors import RequestError
from mooncake_core.messages import (
    DecodeEvent,
    DecodeRequest,
    Failed,
    InstanceInfo,
    Landed,
    Released,
)
from mooncake_core.worker.decode import Decode
from mooncake_core.worker.http import Peers, answer, read_message
from mooncake_core.worker.instance import Instance, Ready
from mooncake_core.worker.metrics import DecodeMetrics
from mooncake_core.worker.runtime import MakePool, Runtime


async def serve_decode(
    config: DecodeConfig, *, ready: Ready, stop: asyncio.Event, make_pool: MakePool = device_pool
) -> None:
    """Run a decode instance until `stop` is set.

    Args:
        config: of the instance.
        ready: called once, when it serves.
        stop: set by the caller.
        make_pool: see `Runtime`.

    Raises:
        ConfigError: an address cannot be bound, or a value does not fit the others.
        ModelError: the model cannot be loaded.
    """
    instance = Instance(config, "decode")
    with instance.sock:
        runtime = await asyncio.to_thread(Runtime, config, config.block_tokens, make_pool)
        try:
            await runtime.calibrate()
            await _serve(config, instance, runtime, ready=ready, stop=stop)
        finally:
            await asyncio.to_thread(runtime.close)


async def _serve(
    config: DecodeConfig, instance: Instance, runtime: Runtime, *, ready: Ready, stop: asyncio.Event
) -> None:
    metrics, peers = DecodeMetrics(runtime.table), Peers()
    decode = Decode(
        runtime, metrics, url=instance.url, max_batch=config.max_batch, clock=monotonic_s
    )
    _show(metrics, decode)

    def info() -> InstanceInfo:
        return instance.info(runtime, max_batch=config.max_batch, tokens_per_s=0.0)

    def status() -> dict[str, Any]:
        return {"instance": info(), "load": decode.load}

    announcer = instance.announcer(peers, info, lambda: decode.load)
    api = DecodeApi(decode)
    handlers = {
        "/v1/decode": api.decode,
        "/v1/landed": api.landed,
        "/v1/released": api.released,
    }
    work = [announcer.run(), decode.run()]
    try:
        await instance.serve(handlers, status, metrics, work, ready=ready, stop=stop)
    finally:
        await decode.close()
        await peers.close()


class DecodeApi:
    """HTTP to `Decode`."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode

    async def decode(self, request: web.Request) -> web.StreamResponse:
        """Answer a DecodeRequest with a stream of events."""
        message = await read_message(request, DecodeRequest)
        reserved = self._decode.open(message)
        if isinstance(reserved, Failed):
            return answer(reserved, _status_of(reserved))
        key = (message.request_id, message.attempt)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        try:
            with contextlib.suppress(ConnectionResetError):
                await response.prepare(request)
                await response.write(_line(reserved))
                async for event in self._decode.events(key):
                    await response.write(_line(event))
                await response.write_eof()
        finally:
            self._decode.abandon(key)
        return response

    async def landed(self, request: web.Request) -> web.Response:
        """Verify what prefill says has landed."""
        problem = await self._decode.landed(await read_message(request, Landed))
        return web.json_response({}) if problem is None else answer(problem, 409)

    async def released(self, request: web.Request) -> web.Response:
        """Take pages back."""
        self._decode.released(await read_message(request, Released))
        return web.json_response({})


def _show(metrics: DecodeMetrics, decode: Decode) -> None:
    metrics.gauge(
        "mooncake_decode_running", "Sequences in the batch now", lambda: decode.load.running
    )
    metrics.gauge(
        "mooncake_decode_waiting",
        "Landed and not in the batch",
        lambda: decode.load.queued_requests,
    )
    metrics.gauge("mooncake_decode_tbt", "Seconds a step, of late", lambda: decode.load.tbt_s)


def _status_of(failure: Failed) -> int:
    if failure.retryable:
        return 503
    return 400 if failure.kind == RequestError.__name__ else 500


def _line(event: DecodeEvent) -> bytes:
    return msgspec.json.encode(event) + b"\n"
