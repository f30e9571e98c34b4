"""Puts while a node is dead or stands still and nobody has told the master: they go elsewhere."""

from __future__ import annotations

import signal

import pytest

from mooncake_core.errors import MooncakeError
from tests.store.fire.stepper import content
from tests.store.processes import Cluster, eventually

pytestmark = pytest.mark.cluster

SIZE = 20_000


@pytest.fixture
def cluster():
    """Three nodes whose payload crosses TCP; the master waits long before it gives one up."""
    cluster = Cluster("network", nodes=3, capacity="16 MiB", ttl_s=4.0)
    yield cluster
    cluster.close()


def keys_of(name, count):
    return [f"{name}-{number}" for number in range(count)]


def assert_all_readable(client, keys):
    values = client.batch_get(keys)
    pairs = zip(keys, values, strict=True)
    assert [key for key, value in pairs if value != content(key, SIZE)] == []


def test_no_put_fails_after_a_node_was_killed_and_all_can_be_read(cluster):
    warm, keys = keys_of("warm", 30), keys_of("after", 200)
    client = cluster.new_client()
    for key in warm:
        assert client.put(key, content(key, SIZE))
    cluster.nodes[0].kill()
    assert all(client.put(key, content(key, SIZE)) for key in keys)
    assert_all_readable(client, keys)
    eventually(lambda: len(cluster.stats().nodes) == 2, "the node is given up")
    assert_all_readable(client, keys)


def test_a_batch_puts_again_what_a_killed_node_was_to_take(cluster):
    keys = keys_of("batch", 200)
    cluster.nodes[1].kill()
    assert all(cluster.client.batch_put([(key, content(key, SIZE)) for key in keys]))
    assert_all_readable(cluster.client, keys)


def test_no_put_fails_while_a_node_stands_still(cluster):
    client, keys = cluster.new_client(timeout_s=0.5), keys_of("still", 40)
    assert all(client.put(key, content(key, SIZE)) for key in keys_of("warm", 6))
    cluster.nodes[2].signal(signal.SIGSTOP)
    assert all(client.put(key, content(key, SIZE)) for key in keys)
    assert_all_readable(client, keys)


def test_a_put_of_which_no_node_takes_a_copy_fails_soon(cluster):
    client = cluster.new_client(timeout_s=0.5)
    for node in cluster.nodes:
        node.kill()
    with pytest.raises(MooncakeError):
        client.put("nowhere", b"x")
