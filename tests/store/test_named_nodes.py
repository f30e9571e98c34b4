"""A node whose name another one has: it waits for a dead one, and gives way to one that lives."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mooncake_core.config import StoreConfig
from mooncake_core.errors import ConfigError
from mooncake_core.native import _native
from mooncake_core.store.node_service import serve_store
from tests.store import wire
from tests.store.fire.link import Link
from tests.store.processes import eventually

EPOCH, TTL_S = 7, 0.3


@pytest.fixture
def master():
    options = _native.MasterOptions(epoch=EPOCH, client_ttl_s=TTL_S, lease_s=1)
    server = _native.MasterServer.start("127.0.0.1:0", options)
    yield server.endpoint
    server.stop()


class Other:
    """A node called "n" at another address, which is heard for as long as it is asked to be."""

    def __init__(self, master):
        self.link = Link(master)
        hello = wire.register(1, EPOCH, b"127.0.0.1:1", 1 << 20, name=b"n")
        assert self.link.ask(hello).is_known

    def beat(self):
        assert self.link.ask(wire.NodeHeartbeat(1)).is_known


def endpoints(master):
    link = Link(master)
    nodes = link.ask(wire.One(), wire.STATS, wire.Stats).nodes
    link.close()
    return [node.endpoint for node in nodes]


async def serve(master, name="n", ready=lambda bound: None, stop=None, drain_s=0.0):
    config = StoreConfig(master=master, capacity="1 MiB", name=name, drain_s=drain_s)
    await serve_store(config, ready=ready, stop=stop or asyncio.Event())


def test_a_node_takes_its_name_over_from_a_dead_one(master, caplog):
    other = Other(master)
    bound = {}

    async def wait_for_the_name():
        stop = asyncio.Event()
        task = asyncio.create_task(serve(master, ready=bound.update, stop=stop))
        await asyncio.to_thread(
            eventually,
            lambda: bound and endpoints(master) == [bound["transfer"].encode()],
            "it is taken in",
        )
        stop.set()
        await task

    with caplog.at_level(logging.WARNING):
        asyncio.run(wait_for_the_name())
    other.link.close()
    assert endpoints(master) == []
    assert "'n' is taken by the node at 127.0.0.1:1" in caplog.text


def test_a_node_that_leaves_while_it_is_refused_does_not_drain_the_one_with_its_name(
    master, caplog
):
    other = Other(master)

    async def leave():
        stop = asyncio.Event()
        task = asyncio.create_task(serve(master, stop=stop, drain_s=5.0))
        while "is taken by" not in caplog.text:
            other.beat()
            await asyncio.wait({task}, timeout=TTL_S / 4)
        stop.set()
        await task

    with caplog.at_level(logging.WARNING):
        asyncio.run(leave())
    assert_online_alone(master, other)


def assert_online_alone(master, other):
    """It was not drained for the one that has gone. Ends it."""
    other.beat()
    link = Link(master)
    [node] = link.ask(wire.One(), wire.STATS, wire.Stats).nodes
    assert node.state == 0, "online"
    link.close()
    other.link.close()


def test_a_node_that_leaves_before_it_is_answered_does_not_drain_the_one_with_its_name(master):
    other = Other(master)

    async def leave():
        stop = asyncio.Event()
        await serve(master, ready=lambda bound: stop.set(), stop=stop, drain_s=5.0)

    asyncio.run(leave())
    assert_online_alone(master, other)


def test_a_node_gives_up_when_the_one_with_its_name_lives(master):
    other = Other(master)

    async def be_refused():
        task = asyncio.create_task(serve(master))
        while not task.done():
            other.beat()
            await asyncio.wait({task}, timeout=TTL_S / 4)
        await task

    with pytest.raises(ConfigError, match=r"'n' is taken by the node at 127\.0\.0\.1:1; stop that"):
        asyncio.run(be_refused())
    assert endpoints(master) == [b"127.0.0.1:1"]
    other.link.close()
