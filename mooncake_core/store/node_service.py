"""A store node's process: a transfer engine whose memory it lends to the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from mooncake_core.config import StoreConfig
from mooncake_core.errors import ConfigError, MooncakeError
from mooncake_core.native import _native, native_errors
from mooncake_core.store.tasks import drain_for
from mooncake_core.transfer import TransferEngine

_log = logging.getLogger(__name__)
_LOOK_S = 0.5  # between two looks at how the node stands with the master
_GRACE_S = 2.0  # that a master may take before anyone is warned
_SILENT_S = 3.0  # that it may leave heartbeats unanswered, as when it starts again
_AGAIN_S = 30.0  # between two warnings
_ASK_S = 1.0  # that a master may take to say why


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
            name = config.name or engine.endpoint
            await _serve_until(stop, node, _Standing(node, name, config.master))
            if config.drain_s > 0 and node.epoch != 0:  # else another may have the name
                await loop.run_in_executor(None, _drain, config.master, name, config.drain_s)
        finally:
            node.close()
    finally:
        engine.close()


class _Standing:
    """Says how a node stands with its master: when that changes, and now and then while it is bad.

    A node without an epoch is in no store; one whose heartbeats nobody answers may still be in one.
    """

    def __init__(self, node: _native.StoreNode, name: str, master: str) -> None:
        self._node, self._name, self._master = node, name, master
        self._epoch = 0
        self._said = ""
        self._is_unheard = False
        self._due_s = time.monotonic() + _GRACE_S

    async def look(self) -> None:
        """Log what is new, or was last said long ago."""
        epoch, refusal = self._node.epoch, self._node.refusal
        if epoch == 0:
            await self._outside(refusal)
        elif self._node.unanswered_s >= _SILENT_S:
            await self._unheard()
        else:
            self._inside(epoch)
        self._said = refusal

    async def _outside(self, refusal: str) -> None:
        if time.monotonic() < self._due_s and refusal in ("", self._said):
            return
        why = refusal or await self._asked()
        there = f"the master at {self._master} is there, and has not taken it yet"
        _log.warning("%s is in no store: %s", self._name, why or there)
        self._due_s = time.monotonic() + _AGAIN_S

    async def _unheard(self) -> None:
        if self._is_unheard and time.monotonic() < self._due_s:
            return
        why = await self._asked()
        silent_s = self._node.unanswered_s
        if silent_s == 0:
            return  # it has just answered
        _log.warning(
            "%s has no answer from the master at %s for %.0f s, and goes on asking: %s",
            self._name,
            self._master,
            silent_s,
            why or "it answers others",
        )
        self._is_unheard, self._due_s = True, time.monotonic() + _AGAIN_S

    def _inside(self, epoch: int) -> None:
        if epoch != self._epoch:
            what = f"has joined the master at {self._master}, epoch {epoch:016x}"
            _log.info("%s %s", self._name, what)
        elif self._is_unheard:
            _log.info("%s has answers from the master at %s again", self._name, self._master)
        self._epoch, self._is_unheard = epoch, False
        self._due_s = time.monotonic() + _GRACE_S

    async def _asked(self) -> str:
        """Return what is wrong with the master; empty: nothing."""
        return await asyncio.get_running_loop().run_in_executor(None, self._ask)

    def _ask(self) -> str:
        try:
            with native_errors:
                _native.MasterClient(self._master).stats(_ASK_S)
        except MooncakeError as error:
            return str(error)
        return ""


async def _serve_until(stop: asyncio.Event, node: _native.StoreNode, standing: _Standing) -> None:
    """Wait until `stop` is set, and say meanwhile how the node stands with the master."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while not (await asyncio.wait({stopped}, timeout=_LOOK_S))[0]:
            if node.has_given_up:
                raise ConfigError(f"the master refuses this node: {node.refusal}")
            await standing.look()
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
        raise ConfigError(f"capacity: {config.capacity}: {error.args[1]}") from error
