"""A store node's process: a transfer engine whose memory it lends to the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mooncake_core.config import StoreConfig
from mooncake_core.errors import ConfigError
from mooncake_core.native import _native
from mooncake_core.store.tasks import drain_for
from mooncake_core.transfer import TransferEngine

_log = logging.getLogger(__name__)
_LOOK_S = 0.5  # between two looks at how the node stands with the master


async def serve_store(
    config: StoreConfig, *, ready: Callable[[dict[str, str]], None], stop: asyncio.Event
) -> None:
    """Lend `config.capacity` of memory until `stop` is set. The master may come and go.

    With `config.drain_s` it first lets others take over what it holds.

    Args:
        config: whose store, how much memory, and where peers reach it.
        ready: called once with the address that is bound, as "transfer".
        stop: ends it.

    Raises:
        ConfigError: the address cannot be bound, or there is not so much memory, or the master
            refuses the node for good: another that lives has its name.
    """
    engine = TransferEngine(config.transfer)
    try:
        loop = asyncio.get_running_loop()
        node = await loop.run_in_executor(None, _start, engine, config)
        try:
            _log.info(
                "offers %s on %s to the master at %s, whenever it is there",
                config.capacity,
                engine.endpoint,
                config.master,
            )
            ready({"transfer": engine.endpoint})
            await _serve_until(stop, node)
            if config.drain_s > 0:
                name = config.name or engine.endpoint
                await loop.run_in_executor(None, _drain, config.master, name, config.drain_s)
        finally:
            node.close()
    finally:
        engine.close()


async def _serve_until(stop: asyncio.Event, node: _native.StoreNode) -> None:
    """Wait until `stop` is set, and say meanwhile what the master has against the node."""
    stopped = asyncio.ensure_future(stop.wait())
    said = ""
    try:
        while not (await asyncio.wait({stopped}, timeout=_LOOK_S))[0]:
            refusal = node.refusal
            if node.has_given_up:
                raise ConfigError(f"the master refuses this node: {refusal}")
            if refusal not in ("", said):
                _log.warning("the master does not take this node yet: %s", refusal)
            said = refusal
    finally:
        stopped.cancel()


def _drain(master: str, name: str, longest_s: float) -> None:
    """Let others take over what a node holds; logs what was left."""
    _log.info("%s is drained before it leaves, for at most %g s", name, longest_s)
    left = drain_for(master, name, longest_s)
    if left:
        _log.warning("%s leaves before it is empty: %s", name, left)
    else:
        _log.info("%s is empty", name)


def _start(engine: TransferEngine, config: StoreConfig) -> _native.StoreNode:
    try:
        return _native.StoreNode.start(
            engine.native,
            master=config.master,
            capacity_bytes=config.capacity_bytes,
            name=config.name,
            domain=config.domain,
        )
    except _native.Error as error:
        raise ConfigError(f"--capacity: {config.capacity}: {error.args[1]}") from error
