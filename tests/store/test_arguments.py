"""What makes no sense is refused with the name of the argument, and nothing else happens."""

from __future__ import annotations

import inspect
import math
from array import array

import msgspec
import pytest

from mooncake_core.config import StoreClientConfig
from mooncake_core.errors import ConfigError, TransferError
from mooncake_core.store import Link, ObjectDescription, PutOptions, StoreAdmin, StoreClient
from mooncake_core.store.aio import AsyncStoreClient
from mooncake_core.store.patterns import remove_by_prefix


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
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_number_out_of_bounds_is_named(client, problem):
    with pytest.raises(ValueError, match=problem):
        REFUSED[problem](client)


def test_who_uses_the_store_is_told_what_is_wrong_with_the_configuration(client):
    with pytest.raises(ConfigError, match=r"StoreClientConfig\.replicas: .* >= 1; got 0"):
        StoreClient(client.engine, StoreClientConfig(replicas=0))
    with pytest.raises(ConfigError, match=r"StoreAdmin\.master: '7400' is not host:port"):
        StoreAdmin("7400")
    with pytest.raises(TypeError, match="a str; a StoreClientConfig is needed"):
        StoreClient(client.engine, "127.0.0.1:7400")
    with pytest.raises(TypeError, match="engine is a StoreClientConfig; a TransferEngine is"):
        StoreClient(StoreClientConfig(), client.engine)


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
    with pytest.raises(TypeError, match="a key is bytes or str, not int"):
        client.admin.copy(5)


def test_a_client_asks_its_own_master_for_tasks(client):
    assert client.admin.tasks() == []
    assert client.admin is client.admin


NUMBERS = array("Q", [1])
WRONG_TYPES = {
    "options is {'replicas': 2}; a PutOptions": lambda it: it.put(
        "k", b"v", options={"replicas": 2}
    ),
    "options is {}; a PutOptions is": lambda it: it.open_write("k", size_bytes=1, options={}),
    "a link is 'p'; a Link, such as": lambda it: it.put("k", b"v", link="p"),
    "links is one Link; a list": lambda it: it.batch_put([("k", b"v")], links=Link()),
    "parent is 5; a key": lambda it: Link(parent=5),
    "the value of 'k' is of type str; bytes": lambda it: it.put("k", "v"),
    "the value of 'b' is of type int": lambda it: it.batch_put([("a", b"v"), ("b", 5)]),
    "a key is bytes or str, not int": lambda it: it.put(5, b"v"),
    "items is one dict; a list of pairs": lambda it: it.batch_put({"q1": b"1"}),
    "items is one int": lambda it: it.batch_put(5),
    "one of items is no pair": lambda it: it.batch_put([("k", b"v", b"w")]),
    "keys: a list of them is needed": lambda it: it.batch_get(5),
    "buffer is of type int": lambda it: it.get_into("k", 5),
    "sizes is one int": lambda it: it.batch_open_write(["k"], 5),
    "one of writers is 1; an ObjectWriter": lambda it: it.batch_commit([1]),
    "writers is one int": lambda it: it.write_ranges(1, [0], NUMBERS, NUMBERS),
    "offsets is one int": lambda it: it.write_ranges([], 0, NUMBERS, NUMBERS),
    "addresses is a list; a contiguous array of uint64": lambda it: it.put_from("k", [1], NUMBERS),
    "lengths is a list": lambda it: it.batch_put_from(["k"], NUMBERS, [1]),
    "capacities is a list": lambda it: it.get_into_memory("k", NUMBERS, [1]),
    "counts is a list": lambda it: it.batch_get_into(["k"], NUMBERS, NUMBERS, counts=[1]),
    "a key is bytes or str, not list": lambda it: it.admin.copy(["o/0"]),
    "one of targets is 1": lambda it: it.admin.copy("k", ["a", 1]),
    "the name of a node is 5": lambda it: it.admin.drain(5),
    "task is 'x'; a whole number": lambda it: it.admin.task("x"),
    "timeout_s is '5'; a number of seconds": lambda it: it.admin.wait(1, "5"),
    "threads is 'a'; a whole number": lambda it: AsyncStoreClient(
        it.engine, StoreClientConfig(), threads="a"
    ),
}


@pytest.mark.parametrize("problem", WRONG_TYPES)
def test_an_argument_of_another_type_is_named(client, problem):
    with pytest.raises(TypeError) as raised:
        WRONG_TYPES[problem](client)
    assert problem in str(raised.value)


def test_a_writer_names_what_is_no_array(client):
    with client.open_write("arrays", size_bytes=1) as writer:
        with pytest.raises(TypeError, match="lengths is a list; a contiguous array of uint64"):
            writer.write(0, NUMBERS, [1])
        with pytest.raises(TypeError, match="addresses is a tuple; a contiguous array of uint64"):
            writer.write_part(0, (1,), NUMBERS)


def test_no_threads_are_too_few(client):
    with pytest.raises(ValueError, match="threads is 0; it must be from 1 to 1024"):
        AsyncStoreClient(client.engine, StoreClientConfig(), threads=0)


def test_a_client_ends_with_its_block(quiet_cluster):
    config = StoreClientConfig(master=quiet_cluster.rpc)
    with StoreClient(quiet_cluster.client.engine, config) as client:
        assert client.get("no such key") is None
    with pytest.raises(TransferError, match="closed"):
        client.get("no such key")


@pytest.mark.parametrize("kind", [PutOptions, Link, ObjectDescription])
def test_help_says_what_each_field_means(kind):
    for field in msgspec.structs.fields(kind):
        assert f"\n    {field.name}: " in inspect.cleandoc(kind.__doc__).replace("Attributes:", "")
