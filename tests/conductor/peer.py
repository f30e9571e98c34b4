"""Instances that speak the protocol and do what a test tells them, over real sockets.

They are written from messages.py alone and compute nothing: the answer is given.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from mooncake_core.messages import (
    DecodeRequest,
    Failed,
    Finished,
    InstanceInfo,
    PrefillRequest,
    PrefillResult,
    Released,
    Reserved,
    Token,
)
from tests.conductor.views import info

EOS = 257
ANSWER = [*b"hello world", EOS]


class Peer:
    """One HTTP server that is a prefill or a decode instance.

    `behaviour` is what it does with the next calls: answer, refuse, reject (for good), die (the
    connection), hang, or for decode "die after N" tokens and "reserve slowly": not yet.
    """

    def __init__(self, instance_id: str, role: str, landed: dict[Any, asyncio.Event]) -> None:
        self.instance_id = instance_id
        self.role = role
        self.behaviour = "answer"
        self.answer = list(ANSWER)
        self.cached_tokens = 0
        self.requests: list[PrefillRequest | DecodeRequest] = []
        self.released: list[Released] = []
        self.open_calls = 0
        self.cancelled = 0
        self.called = asyncio.Event()
        self._landed = landed
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/prefill", self._prefill),
                web.post("/v1/decode", self._decode),
                web.post("/v1/released", self._release),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def info(self, **values: Any) -> InstanceInfo:
        name = values.pop("instance_id", self.instance_id)
        return info(name, self.role, **{"url": self.url, **values})

    async def register(self, conductor: str, **values: Any) -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{conductor}/internal/instances", data=msgspec.json.encode(self.info(**values))
            ) as response,
        ):
            return response.status

    async def _prefill(self, request: web.Request) -> web.StreamResponse:
        call = msgspec.json.decode(await request.read(), type=PrefillRequest)
        async with self._counted(call):
            trouble = await self._trouble(request)
            if trouble is not None:
                return trouble
            self._landed[call.request_id, call.attempt].set()
            result = PrefillResult(
                request_id=call.request_id,
                attempt=call.attempt,
                first_token=self.answer[0],
                cached_tokens=self.cached_tokens,
                local_tokens=0,
                store_tokens=self.cached_tokens,
                queue_s=0.0,
                load_s=0.0,
                compute_s=0.01,
                send_s=0.0,
            )
            return _json(result)

    async def _decode(self, request: web.Request) -> web.StreamResponse:
        call = msgspec.json.decode(await request.read(), type=DecodeRequest)
        async with self._counted(call):
            trouble = await self._trouble(request)
            if trouble is not None:
                return trouble
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(_line(self._reserved(call)))
            await self._landed[call.request_id, call.attempt].wait()
            await self._stream(call, request, response)
            return response

    async def _release(self, request: web.Request) -> web.Response:
        self.released.append(msgspec.json.decode(await request.read(), type=Released))
        return web.json_response({})

    async def _stream(
        self, call: DecodeRequest, request: web.Request, response: web.StreamResponse
    ) -> None:
        tokens = self.answer[: call.max_tokens]
        for index in range(1, len(tokens)):
            if self.behaviour == f"die after {index}":
                assert request.transport is not None
                request.transport.abort()
                return
            if self.behaviour == f"hang after {index}":
                await asyncio.Event().wait()
            await response.write(_line(Token(token_id=tokens[index], index=index)))
        reason = "stop" if tokens[-1] == EOS else "length"
        await response.write(_line(Finished(reason=reason, completion_tokens=len(tokens))))

    def _reserved(self, call: DecodeRequest) -> Reserved:
        return Reserved(
            request_id=call.request_id,
            attempt=call.attempt,
            url=self.url,
            endpoint="127.0.0.1:1",
            segment_id=1,
            pool_pages=10,
            page_bytes=64,
            pages=[0],
        )

    async def _trouble(self, request: web.Request) -> web.StreamResponse | None:
        match self.behaviour:
            case "refuse":
                return _json(Failed(error="busy", retryable=True), status=503)
            case "reject":
                return _json(Failed(error="nonsense", retryable=False), status=400)
            case "babble":
                return web.Response(text="<html>", status=200)
            case "die":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "hang" | "reserve slowly":
                await asyncio.Event().wait()
        return None

    def _counted(self, call: PrefillRequest | DecodeRequest) -> _Counted:
        self.requests.append(call)
        self.called.set()
        return _Counted(self)


class _Counted:
    """Counts a call while it is open, and whether it was cancelled."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def __aenter__(self) -> None:
        self._peer.open_calls += 1

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._peer.open_calls -= 1
        left = (asyncio.CancelledError, ConnectionResetError)  # while it waited, or while it wrote
        self._peer.cancelled += kind is not None and issubclass(kind, left)


def landings() -> dict[Any, asyncio.Event]:
    """What prefills tell decodes, here within one process."""
    return defaultdict(asyncio.Event)


def _json(message: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(message), status=status, content_type="application/json"
    )


def _line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"
