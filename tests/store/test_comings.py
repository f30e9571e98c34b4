"""Logs say which nodes come and go, and how a node stands with its master."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec
import pytest

from mooncake_core.config import MasterConfig, StoreConfig
from mooncake_core.store.comings import by_name, changes
from mooncake_core.store.master_service import serve_master
from mooncake_core.store.node_service import serve_store
from mooncake_core.store.stats import NodeStats
from tests.store.fire.relay import Relay

NODE = NodeStats(
    id="01",
    endpoint="10.0.0.2:5",
    host_id="h",
    name="n",
    domain="h",
    capacity_bytes=1 << 30,
    used_bytes=1 << 20,
    quarantined_bytes=0,
    state="online",
)


def changed(**fields):
    return msgspec.structs.replace(NODE, **fields)


@pytest.mark.parametrize(
    "before, now, level, event",
    [
        (None, NODE, "INFO", "node n at 10.0.0.2:5 has joined: 1.00 GiB"),
        (None, changed(domain="rack"), "INFO", "has joined: 1.00 GiB, domain rack"),
        (NODE, changed(id="02"), "INFO", "has started anew"),
        (NODE, changed(state="suspected"), "WARNING", "node n is silent"),
        (changed(state="suspected"), NODE, "INFO", "node n is heard again"),
        (changed(state="suspected"), None, "WARNING", "is lost, with the 1.00 MiB it held"),
        (NODE, None, "INFO", "has left, with the 1.00 MiB it held"),
        (NODE, changed(state="draining"), "INFO", "node n is drained"),
        (changed(state="draining"), NODE, "INFO", "node n takes objects again"),
        (
            changed(state="draining"),
            changed(state="draining", used_bytes=0),
            "INFO",
            "node n is empty",
        ),
    ],
)
def test_each_change_of_a_node_is_one_event(before, now, level, event):
    found = list(changes(by_name(filter(None, [before])), by_name(filter(None, [now]))))
    assert [(logging.getLevelName(number), event in text) for number, text in found] == [
        (level, True)
    ], found


def test_a_node_that_stays_as_it_is_is_no_event():
    assert not list(changes(by_name([NODE]), by_name([changed(used_bytes=0)])))


class Served:
    """A service of ours in this loop, until `end`."""

    def __init__(self, serve, config):
        self.bound, self.stop, self.is_ready = {}, asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(serve(config, ready=self._ready, stop=self.stop))

    def _ready(self, bound):
        self.bound.update(bound)
        self.is_ready.set()

    async def end(self):
        self.stop.set()
        await self.task


async def started(serve, config):
    served = Served(serve, config)
    await asyncio.wait_for(served.is_ready.wait(), 20)
    return served


async def logged(caplog, *texts, timeout_s=20.0):
    """Wait until a line with all of `texts` was logged."""
    for _ in range(int(timeout_s / 0.02)):
        if any(all(text in line for text in texts) for line in caplog.messages):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{texts} not in {caplog.messages}")


def test_a_node_says_that_it_has_joined_and_its_master_that_it_came_and_went(caplog):
    async def come_and_go():
        free = "127.0.0.1:0"
        master = await started(
            serve_master, MasterConfig(listen=free, admin=free, client_ttl_s=0.5)
        )
        config = StoreConfig(master=master.bound["rpc"], capacity="1 MiB", name="n")
        node = await started(serve_store, config)
        await logged(caplog, "n has joined the master at", master.bound["rpc"], "epoch")
        await logged(caplog, "node n at", "has joined")
        await master.end()
        caplog.clear()
        listen = master.bound["rpc"]
        again = MasterConfig(listen=listen, admin=free, client_ttl_s=0.5)
        master = await started(serve_master, again)
        await logged(caplog, "n has joined the master at", "epoch")
        await logged(caplog, "node n at", "has joined")
        await node.end()
        await logged(caplog, "node n at", "has left")
        await master.end()

    with caplog.at_level(logging.INFO):
        asyncio.run(come_and_go())


def test_a_node_says_why_no_master_knows_it(caplog):
    async def wait_in_vain():
        node = await started(
            serve_store, StoreConfig(master="127.0.0.1:1", capacity="1 MiB", name="n")
        )
        await logged(caplog, "n is in no store", "127.0.0.1:1", "Connection refused")
        await node.end()

    with caplog.at_level(logging.INFO):
        asyncio.run(wait_in_vain())


def test_a_node_says_that_its_master_does_not_answer_and_that_it_does_again(caplog):
    async def go_away_and_come_back():
        free = "127.0.0.1:0"
        master = await started(serve_master, MasterConfig(listen=free, admin=free))
        with contextlib.closing(Relay(master.bound["rpc"])) as relay:
            config = StoreConfig(master=relay.endpoint, capacity="1 MiB", name="n")
            node = await started(serve_store, config)
            await logged(caplog, "n has joined the master at")
            relay.hold_answers()
            await logged(caplog, "n has no answer from the master at", relay.endpoint, "goes on")
            caplog.clear()
            relay.resume()
            await logged(caplog, "n has answers from the master at", relay.endpoint, "again")
            await node.end()
        await master.end()

    with caplog.at_level(logging.INFO):
        asyncio.run(go_away_and_come_back())
    assert not any("has joined" in line for line in caplog.messages), "it was there all the time"
