"""The shell that both kinds of instances share: HTTP, registration, start and stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from mooncake_core.config import WorkerConfig
from mooncake_core.listening import address_of, bind
from mooncake_core.messages import InstanceInfo, InstanceLoad, Role
from mooncake_core.worker.announcer import Announcer, EventSource
from mooncake_core.worker.http import Handler, Peers, new_app, start_server
from mooncake_core.worker.metrics import InstanceMetrics
from mooncake_core.worker.peer_id import format_peer_id
from mooncake_core.worker.runtime import Runtime

Ready = Callable[[dict[str, str]], None]


class Instance:
    """An instance's address and identity. Binds when it is made.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(self, config: WorkerConfig, role: Role) -> None:
        self.sock: socket.socket = bind(config.listen, "listen")
        self.address = address_of(self.sock)
        self.url = f"http://{self.address}"
        self.id = secrets.token_hex(8)
        self.role = role
        self._config = config

    def info(self, runtime: Runtime, *, max_batch: int, tokens_per_s: float) -> InstanceInfo:
        """Return who this instance is now."""
        return InstanceInfo(
            instance_id=self.id,
            role=self.role,
            url=self.url,
            host_id=runtime.engine.host_id,
            peer_id=format_peer_id(runtime.engine.peer_id),
            model=runtime.info,
            pages=runtime.pool.pages,
            max_batch=max_batch,
            pid=os.getpid(),
            prefill_tokens_per_s=tokens_per_s,
        )

    def announcer(
        self,
        peers: Peers,
        info: Callable[[], InstanceInfo],
        load: Callable[[], InstanceLoad],
        events: EventSource | None = None,
    ) -> Announcer:
        """Return what keeps the conductor informed."""
        return Announcer(peers, self._config.conductor, info, load, events)

    async def serve(
        self,
        handlers: Mapping[str, Handler],
        status: Callable[[], dict[str, Any]],
        metrics: InstanceMetrics,
        work: Sequence[Awaitable[None]],
        *,
        ready: Ready,
        stop: asyncio.Event,
    ) -> None:
        """Serve until `stop`, and run `work` meanwhile; its failure ends the instance.

        Args:
            handlers: of POST, by path.
            status: returns the body of /status.
            metrics: of /metrics.
            work: endless; cancelled at the end.
            ready: called once, when HTTP is served.
            stop: set by the caller.
        """
        app = new_app()
        app.add_routes([web.post(path, handler) for path, handler in handlers.items()])
        app.add_routes(_views(status, metrics))
        runner = await start_server(app, self.sock)
        tasks = [asyncio.ensure_future(stop.wait()), *map(asyncio.ensure_future, work)]
        try:
            ready({"http": self.address})
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await runner.cleanup()
            for task in tasks:
                if not task.done():
                    task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()


def _views(status: Callable[[], dict[str, Any]], metrics: InstanceMetrics) -> list[web.RouteDef]:
    async def show_health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def show_status(_: web.Request) -> web.Response:
        body = msgspec.json.encode(status())
        return web.Response(body=body, content_type="application/json")

    async def show_metrics(_: web.Request) -> web.Response:
        body, content_type = metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    return [
        web.get("/health", show_health),
        web.get("/status", show_status),
        web.get("/metrics", show_metrics),
    ]
