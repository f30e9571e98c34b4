"""The master's process: the native server, and an HTTP port for people and Prometheus."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from mooncake_core.config import MasterConfig
from mooncake_core.errors import ConfigError, MooncakeError, StoreUnavailable
from mooncake_core.listening import IDLE_S, address_of, bind, explained
from mooncake_core.native import _native, native_errors
from mooncake_core.store.comings import Look, changes, look_at
from mooncake_core.store.metrics import StatsCollector
from mooncake_core.store.stats import ClusterStats, decode_stats
from mooncake_core.store.tasks import StoreAdmin

_log = logging.getLogger(__name__)
_STATS_TIMEOUT_S = 2.0
_LOOK_S = 1.0  # between two looks at the nodes

_Stats = Callable[[], Awaitable[ClusterStats]]


async def serve_master(
    config: MasterConfig, *, ready: Callable[[dict[str, str]], None], stop: asyncio.Event
) -> None:
    """Serve metadata and admin HTTP until `stop` is set; log which nodes come and go, and drains.

    Args:
        config: where to listen, and how long silence and leases last.
        ready: called once with the addresses that are bound, as "rpc" and "admin".
        stop: ends it.

    Raises:
        ConfigError: an address is in use or cannot be bound.
    """
    server = _start(config)
    try:
        stats = _stats_of(server.endpoint)
        runner = web.AppRunner(_admin(stats), access_log=None, keepalive_timeout=IDLE_S)
        await runner.setup()
        try:
            sock = bind(config.admin, "admin")
            await web.SockSite(runner, sock).start()
            admin = address_of(sock)
            _log.info("master serves %s, admin on %s", server.endpoint, admin)
            ready({"rpc": server.endpoint, "admin": admin})
            look = _look_of(server.endpoint, stats)
            await _watch_until(stop, look, min(_LOOK_S, config.client_ttl_s / 2))
        finally:
            await runner.cleanup()
    finally:
        server.stop()


def _start(config: MasterConfig) -> _native.MasterServer:
    options = _native.MasterOptions(
        epoch=secrets.randbits(63) + 1,
        client_ttl_s=config.client_ttl_s,
        lease_s=config.lease_s,
        eviction=config.eviction,
        admission=config.admission,
        admission_window_s=config.admission_window_s,
        admission_keys=config.admission_keys,
        placement=config.placement,
        stripe_bytes=config.stripe_bytes,
        seed=secrets.randbits(64),
        repairs=config.repairs,
        hot_gets_per_s=config.hot_gets_per_s,
        hot_replicas=config.hot_replicas,
        heat_half_life_s=config.heat_half_life_s,
    )
    try:
        return _native.MasterServer.start(config.listen, options)
    except _native.Error as error:
        raise ConfigError(f"listen: {explained(error.args[1])}") from error


def _stats_of(endpoint: str) -> _Stats:
    """Return how to ask for the stats: as everyone does, through the server's port."""
    client = _native.MasterClient(endpoint)

    def read() -> ClusterStats:
        with native_errors:
            return decode_stats(client.stats(_STATS_TIMEOUT_S))

    async def stats() -> ClusterStats:
        return await asyncio.get_running_loop().run_in_executor(None, read)

    return stats


def _look_of(endpoint: str, stats: _Stats) -> Callable[[], Awaitable[Look]]:
    """Return how to look at the nodes and at what is asked of them."""
    admin = StoreAdmin(endpoint, timeout_s=_STATS_TIMEOUT_S)

    async def look() -> Look:
        nodes = (await stats()).nodes
        tasks = await asyncio.get_running_loop().run_in_executor(None, admin.tasks)
        return look_at(nodes, tasks)

    return look


async def _watch_until(
    stop: asyncio.Event, look: Callable[[], Awaitable[Look]], period_s: float
) -> None:
    """Log what becomes of nodes until `stop` is set."""
    stopped = asyncio.ensure_future(stop.wait())
    known = Look()
    try:
        while not (await asyncio.wait({stopped}, timeout=period_s))[0]:
            try:
                found = await look()
            except MooncakeError as error:  # the next look may tell
                _log.debug("the nodes are not known just now: %s", error)
                continue
            for level, event in changes(known, found):
                _log.log(level, "%s", event)
            known = found
    finally:
        stopped.cancel()


def _admin(stats: _Stats) -> web.Application:
    """Build the HTTP side."""

    async def health(_: web.Request) -> web.Response:
        try:
            epoch = (await stats()).epoch
        except StoreUnavailable as error:
            return web.json_response({"status": "unavailable", "error": str(error)}, status=503)
        return web.json_response({"status": "ok", "epoch": f"{epoch:016x}"})

    async def status(_: web.Request) -> web.Response:
        return web.Response(
            body=msgspec.json.encode(await stats()), content_type="application/json"
        )

    async def metrics(_: web.Request) -> web.Response:
        registry = CollectorRegistry()
        registry.register(StatsCollector(await stats()))
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/status", status)
    app.router.add_get("/metrics", metrics)
    return app
