"""JSON messages over HTTP: what both kinds of instances need of a server and of a client."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec
from aiohttp import web

from mooncake_core.errors import MooncakeError, RequestError
from mooncake_core.listening import IDLE_S
from mooncake_core.messages import Failed, Message

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 << 20
"""A prompt of a million tokens is 7 MB of JSON."""
_DRAIN_S = 0.5
"""How long connections may take to close when the server stops."""

T = TypeVar("T", bound=Message)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def start_server(app: web.Application, sock: socket.socket) -> web.AppRunner:
    """Serve `app` on `sock`; a handler is cancelled when its client closes the connection."""
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=IDLE_S,
        shutdown_timeout=_DRAIN_S,
    )
    await runner.setup()
    await web.SockSite(runner, sock).start()
    return runner


def new_app() -> web.Application:
    """Return an application whose every error answer is a Failed."""
    return web.Application(middlewares=[_answer_errors], client_max_size=MAX_BODY_BYTES)


async def read_message(request: web.Request, kind: type[T]) -> T:
    """Return the body as a `kind`, or raise RequestError that says what is wrong with it."""
    body = await request.read()
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise RequestError(f"not a {kind.__name__}: {error}") from error


def answer(message: Message, status: int = 200) -> web.Response:
    """Return `message` as a JSON response."""
    return web.Response(
        status=status, body=msgspec.json.encode(message), content_type="application/json"
    )


def failed(error: MooncakeError) -> Failed:
    """Return `error` as others are told of it."""
    return Failed(error=str(error), retryable=error.retryable, kind=type(error).__name__)


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return answer(failed(error), 400)
    except MooncakeError as error:
        return answer(failed(error), 503)
    except web.RequestPayloadError as error:
        return answer(failed(RequestError(f"the body cannot be read: {error}")), 400)
    except web.HTTPException as error:
        return answer(Failed(error=error.reason, retryable=False), error.status)


class Peers:
    """Messages to other processes. Close it at the end."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def post(self, url: str, message: Message, timeout_s: float) -> tuple[int, bytes]:
        """Return (status, body) of the answer.

        Raises:
            TimeoutError: nobody answered in time; the message may have arrived nevertheless.
            OSError: the connection failed; it may have arrived nevertheless.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(
                url, data=msgspec.json.encode(message), headers=headers, timeout=timeout
            ) as response:
                return response.status, await response.read()
        except asyncio.TimeoutError as error:
            raise TimeoutError(f"{url}: no answer within {timeout_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno or 0  # negative: of a name that is not known
            reason = os.strerror(number) if number > 0 else error.os_error.strerror
            raise OSError(f"{url}: {reason or error}") from error
        except aiohttp.ClientError as error:
            raise OSError(f"{url}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
