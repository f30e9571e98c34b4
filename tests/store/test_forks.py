"""Forks of processes that use the store, lend memory to it, or are its master."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

IN_A_FORK = """
import asyncio, os, sys
from mooncake_core.config import TransferConfig
from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.errors import TransferError
from mooncake_core.native import _native
from mooncake_core.store import StoreAdmin, StoreClient
from mooncake_core.store.aio import AsyncStoreClient
from mooncake_core.transfer import TransferEngine
from tests.store.processes import eventually
from tests.transfer.peer import numbers

options = _native.MasterOptions(epoch=1, client_ttl_s=10.0, lease_s=5.0)
master = _native.MasterServer.start("127.0.0.1:0", options)
engine = TransferEngine(TransferConfig(same_host=%r))
node = _native.StoreNode.start(engine.native, master=master.endpoint, capacity_bytes=1 << 20)
config = StoreClientConfig(master=master.endpoint)
store, aio = StoreClient(engine, config), AsyncStoreClient(engine, config)
admin = StoreAdmin(master.endpoint)
eventually(lambda: store.stats().capacity_bytes, "the node")
assert store.put("key", b"value" * 10_000)
assert asyncio.run(aio.get("key")) == b"value" * 10_000
view, reader = store.view("key"), store.open_read(["key"])
writer = store.open_write("open", size_bytes=4)
own = engine.create_segment(4096)
memory = numbers(own.address), numbers(4)

def check_fork():
    uses = (
        lambda: store.get("key"),
        lambda: store.put("other", b""),
        lambda: store.exists("key"),
        lambda: store.stats(),
        lambda: store.view("key"),
        lambda: store.open_read(["key"]),
        lambda: reader.read(0, 0, *memory),
        lambda: writer.write(0, *memory),
        lambda: writer.commit(),
        lambda: admin.tasks(),
        lambda: asyncio.run(aio.get("key")),
    )
    for use in uses:
        try:
            use()
            os._exit(1)
        except TransferError as error:
            assert f"belongs to process {os.getppid()}" in str(error), error
    try:
        view.buffer
        os._exit(2)
    except ValueError as error:
        assert "belongs to process" in str(error), error
    for end in (writer.abort, reader.close, store.close, engine.close, node.close, master.stop):
        end()
    sys.exit(0)

child = os.fork()
if child == 0:
    check_fork()
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if child == 0:
    store = StoreClient(TransferEngine(TransferConfig()), config)
    assert store.get("key") == b"value" * 10_000
    store.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0

writer.write(0, *memory)
assert writer.commit() and store.get("open") == bytes(4)
asyncio.run(aio.close())
assert bytes(view.buffer) == b"value" * 10_000 and reader.read(0, 0, *memory)
view.close(), reader.close(), store.close(), node.close(), engine.close(), master.stop()
"""


@pytest.mark.parametrize("same_host", ["shm", "network"])
def test_a_fork_is_refused_what_its_parent_has_opened_and_ends_well(same_host):
    subprocess.run([sys.executable, "-c", IN_A_FORK % same_host], cwd=ROOT, check=True, timeout=30)
