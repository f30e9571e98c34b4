"""What makes no sense is refused with the name of the argument, and nothing else happens."""

from __future__ import annotations

import math
import threading
from array import array

import pytest

from mooncake_core.config import StoreClientConfig
from mooncake_core.errors import MooncakeError, TransferError
from mooncake_core.store import StoreAdmin, StoreClient
from mooncake_core.store.patterns import remove_by_prefix

NUMBERS = array("Q")


@pytest.fixture
def client(quiet_cluster):
    return quiet_cluster.client


REFUSED = {
    "offset is -1": lambda client: client.get_range("key", -1),
    "length is -1": lambda client: client.get_range("key", 0, -1),
    "size_bytes is -1": lambda client: client.open_write("key", size_bytes=-1),
    "part_bytes is 18446744073709551616": lambda client: client.open_write(
        "key", size_bytes=1, part_bytes=1 << 64
    ),
    "page is 0": lambda client: client.list_objects(page=0),
    "page is -1": lambda client: remove_by_prefix(client, "key", page=-1),
    "timeout_s is nan": lambda client: client.admin.wait(1, math.nan),
    "timeout_s is -1": lambda client: StoreAdmin("127.0.0.1:1", timeout_s=-1),
    "timeout_s is inf": lambda client: StoreClient(
        client.engine, StoreClientConfig(timeout_s=math.inf)
    ),
    "replicas is 0": lambda client: StoreClient(client.engine, StoreClientConfig(replicas=0)),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_number_out_of_bounds_is_named(client, problem):
    with pytest.raises(ValueError, match=problem):
        REFUSED[problem](client)


def test_one_key_is_no_list_of_keys(client):
    calls = (
        client.batch_get,
        client.batch_exists,
        client.batch_remove,
        client.match_prefix,
        client.describe,
        client.pin,
        client.open_read,
    )
    for call in calls:
        for key in ("key", b"key"):
            with pytest.raises(TypeError, match="one key where a list of keys is needed"):
                call(key)
    with pytest.raises(TypeError, match="targets is the one text 'node-0'"):
        client.admin.copy("key", "node-0")
    with pytest.raises(TypeError, match="bytes-like"):
        client.admin.copy(5)


def test_a_client_asks_its_own_master_for_tasks(client):
    assert client.admin.tasks() == []
    assert client.admin is client.admin


def use(client, number):
    """Make each kind of call; what is opened is closed again."""
    key = f"closing-{number}"
    client.put(key, b"x" * 50_000)
    client.batch_get([key, "none"])
    if view := client.view(key):
        view.close()
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
