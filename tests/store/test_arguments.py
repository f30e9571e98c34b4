"""What makes no sense is refused with the name of the argument, and nothing else happens."""

from __future__ import annotations

import math

import pytest

from mooncake_core.config import StoreClientConfig
from mooncake_core.errors import ConfigError
from mooncake_core.store import StoreAdmin, StoreClient
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
    with pytest.raises(TypeError, match="bytes-like"):
        client.admin.copy(5)


def test_a_client_asks_its_own_master_for_tasks(client):
    assert client.admin.tasks() == []
    assert client.admin is client.admin
