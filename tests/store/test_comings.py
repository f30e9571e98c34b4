"""Logs say which nodes come and go, and how a node stands with its master."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec
import pytest

from mooncake_core.config import MasterConfig, StoreClientConfig, StoreConfig, TransferConfig
from mooncake_core.store import StoreClient
from mooncake_core.store.comings import Look, changes, look_at
from mooncake_core.store.master_service import serve_master
from mooncake_core.store.node_service import serve_store
from mooncake_core.store.stats import NodeStats
from mooncake_core.store.tasks import StoreAdmin, TaskStatus
from mooncake_core.transfer import TransferEngine
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
        (changed(state="suspected"), changed(state="draining"), "INFO", "node n is heard again"),
        (changed(state="draining"), NODE, "INFO", "node n takes objects again"),
    ],
)
def test_each_change_of_a_node_is_one_event(before, now, level, event):
    found = list(changes(look_at(filter(None, [before]), []), look_at(filter(None, [now]), [])))
    assert [(logging.getLevelName(number), event in text) for number, text in found] == [
        (level, True)
    ], found


def test_a_node_that_stays_as_it_is_is_no_event():
    assert not list(changes(look_at([NODE], []), look_at([changed(used_bytes=0)], [])))


def test_of_a_node_that_has_left_nothing_is_said_that_may_have_changed_since_the_last_look():
    assert list(changes(look_at([NODE], []), Look())) == [
        (logging.INFO, "node n at 10.0.0.2:5 has left")
    ]


DRAIN = TaskStatus(
    task=3,
    kind="drain",
    state="running",
    key="",
    source="n",
    done_objects=0,
    total_objects=2,
    done_bytes=0,
    total_bytes=1 << 20,
    age_s=1,
    problem="",
)
BEGUN = "node n is being drained: it takes nothing new"


def drained(state, problem=""):
    return look_at(
        [changed(state="draining" if state in ("running", "done") else "online")],
        [msgspec.structs.replace(DRAIN, state=state, problem=problem)],
    )


@pytest.mark.parametrize(
    "end, level, event",
    [
        (drained("done"), "INFO", "node n is drained: it is empty"),
        (
            drained("failed", "no room"),
            "WARNING",
            "node n could not be drained: no room, and it takes objects again",
        ),
        (
            drained("cancelled"),
            "INFO",
            "the drain of node n was cancelled, and it takes objects again",
        ),
    ],
)
def test_a_drain_is_told_when_it_begins_and_how_it_ends(end, level, event):
    online, running = look_at([NODE], []), drained("running")
    begun, ended = (logging.INFO, BEGUN), (getattr(logging, level), event)
    assert list(changes(online, running)) == [begun]
    assert list(changes(running, end)) == [ended]
    assert list(changes(online, end)) == [begun, ended], "also what is over by the next look"
    assert not list(changes(end, end))


def test_what_the_nodes_say_of_a_drain_that_failed_after_the_look_at_them_is_no_event():
    failed = drained("failed", "no room")
    before = look_at([changed(state="draining")], failed.drains.values())
    assert not list(changes(before, failed))


def test_a_drain_whose_node_is_lost_is_not_told_to_take_objects():
    lost = look_at([], drained("failed", "it was lost").drains.values())
    (drain, gone) = changes(drained("running"), lost)
    assert drain == (logging.WARNING, "node n could not be drained: it was lost")
    assert gone[1].endswith("has left")


def test_a_drain_that_is_undone_after_its_end_is_told():
    undone = look_at([NODE], drained("done").drains.values())
    assert list(changes(drained("done"), undone)) == [(logging.INFO, "node n takes objects again")]


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


def test_a_master_says_how_drains_have_ended(caplog):
    async def drain():
        free, loop = "127.0.0.1:0", asyncio.get_running_loop()
        master = await started(serve_master, MasterConfig(listen=free, admin=free))
        address = master.bound["rpc"]
        config = StoreConfig(master=address, capacity="1 MiB", name="n")
        node = await started(serve_store, config)
        await logged(caplog, "node n at", "has joined")
        await loop.run_in_executor(None, put_and_drain_in_vain, address)
        await logged(caplog, "node n could not be drained: 1 objects of", "takes objects again")
        assert BEGUN in caplog.messages and not any("is drained" in m for m in caplog.messages)
        other = await started(
            serve_store, StoreConfig(master=address, capacity="1 MiB", name="m", drain_s=20)
        )
        await logged(caplog, "node m at", "has joined")
        await other.end()
        await logged(caplog, "node m is drained: it is empty")
        await logged(caplog, "node m at", "has left")
        await node.end()
        await master.end()

    with caplog.at_level(logging.INFO):
        asyncio.run(drain())


def put_and_drain_in_vain(master):
    """Drain the only node there is, which holds an object."""
    engine = TransferEngine(TransferConfig())
    client, admin = StoreClient(engine, StoreClientConfig(master=master)), StoreAdmin(master)
    assert client.put("key", b"value")
    assert admin.wait(admin.drain("n"), 20).state == "failed"
    client.close()
    engine.close()


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
