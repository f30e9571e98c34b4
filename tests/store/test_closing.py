"""Calls of what is closed, or is being closed: they end well or say so, and never miss."""

from __future__ import annotations

import os
import threading
import time
from array import array

import pytest

from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.errors import MooncakeError, TransferError
from mooncake_core.store import StoreClient
from tests.store.processes import TTL_S, eventually


@pytest.mark.parametrize("closed", ["client", "engine"])
def test_what_is_closed_says_so_whatever_it_is_asked(quiet_cluster, closed):
    client = quiet_cluster.new_client()
    own = client.engine.create_segment(4096)
    memory = array("Q", [own.address]), array("Q", [5])
    assert client.put(f"{closed}-key", b"value")
    view, reader = client.view(f"{closed}-key"), client.open_read([f"{closed}-key"])
    writers = client.batch_open_write([f"{closed}-{number}" for number in range(3)], [5, 5, 0])
    writers[1].write(0, *memory)
    (client if closed == "client" else client.engine).close()
    calls = (
        lambda: client.put("x", b""),
        lambda: client.upsert("x", b""),
        lambda: client.put_from("x", *memory),
        lambda: client.get("x"),
        lambda: client.get_range("x", 0),
        lambda: client.get_into("x", bytearray(1)),
        lambda: client.view("x"),
        lambda: client.open_read(["x"]),
        lambda: client.open_write("x", size_bytes=1),
        lambda: client.exists("x"),
        lambda: client.match_prefix(["x"]),
        lambda: client.describe(["x"]),
        lambda: list(client.list_objects()),
        lambda: client.remove("x"),
        lambda: client.pin(["x"]),
        client.stats,
        lambda: reader.read(0, 0, *memory),
        reader.check_valid,
        lambda: writers[0].write(0, *memory),
        *(writer.commit for writer in writers[1:] if closed == "client"),
    )
    for call in calls:
        with pytest.raises(TransferError, match=f"the (store )?{closed} is closed"):
            call()
    assert view.buffer == b"value"
    for end in (view.close, reader.close, *(writer.abort for writer in writers), client.close):
        end()


def test_a_reader_that_was_closed_says_so(quiet_cluster):
    client = quiet_cluster.client
    own = client.engine.create_segment(64)
    assert client.put("read", b"1")
    with client.open_read(["read"]) as reader:
        pass
    with pytest.raises(TransferError, match="the reader was closed"):
        reader.read(0, 0, array("Q", [own.address]), array("Q", [1]))
    own.close()


def use(client, number):
    """Make each kind of call; what is opened is closed again."""
    key = f"closing-{number}"
    client.put(key, b"x" * 50_000)
    assert client.batch_get([key, "none"]) == [b"x" * 50_000, None]
    client.view(key).close()
    with client.open_read([key]) as reader:
        reader.check_valid()
    if writer := client.open_write(f"{key}-open", size_bytes=0):
        with writer:
            writer.commit()
    client.batch_remove([key, f"{key}-open"])
    client.stats()


def test_calls_that_a_close_meets_end_well_or_say_that_it_is_closed(quiet_cluster):
    errors, others = [], []
    for _ in range(5):
        client = quiet_cluster.new_client(timeout_s=20.0)
        under_way = threading.Barrier(5)

        def go(number, client=client, under_way=under_way):
            use(client, number)
            under_way.wait()
            try:
                while True:
                    use(client, number)
            except TransferError as error:
                errors.append(str(error))
            except MooncakeError as error:
                others.append(error)

        threads = [threading.Thread(target=go, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        under_way.wait()
        client.close()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
    assert others == []
    assert len(errors) == 20
    assert {error for error in errors if "closed" not in error} == set()


def test_views_that_outlive_their_client_keep_their_own_pins_only(quiet_cluster):
    client = quiet_cluster.new_client()
    keys = [f"outlived-{number}" for number in range(3)]
    client.batch_put((key, b"value") for key in keys)
    views = [client.view(key) for key in keys]
    reader = client.open_read(keys)
    if views[0].is_copy:
        pytest.skip("nothing is pinned across hosts")

    def leases():
        return [one.leases for one in quiet_cluster.client.describe(keys)]

    client.close()
    eventually(lambda: leases() == [1, 1, 1], "the reader's lease ends")
    views[0].close()
    views[2].close()
    eventually(lambda: leases() == [0, 1, 0], "the pins of closed views end")
    time.sleep(2 * TTL_S)  # for so long a silent client is kept
    assert leases() == [0, 1, 0]
    assert views[1].buffer == b"value"
    sessions = quiet_cluster.stats().clients
    views[1].close()
    eventually(lambda: leases() == [0, 0, 0], "the last pin ends")
    eventually(lambda: quiet_cluster.stats().clients == sessions - 1, "the goodbye is heard")
    reader.close()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_client_that_is_closed_keeps_no_sockets(quiet_cluster):
    engine = quiet_cluster.client.engine
    before = descriptors()
    clients = [StoreClient(engine, StoreClientConfig(master=quiet_cluster.rpc)) for _ in range(8)]
    for client in clients:
        client.stats()
    assert descriptors() >= before + 8
    for client in clients:
        client.close()
    assert descriptors() < before + 8
