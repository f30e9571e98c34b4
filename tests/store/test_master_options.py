"""What a master is told is what it does."""

from __future__ import annotations

from contextlib import closing

import pytest

from mooncake_core.store import PutOptions, PutResult
from tests.store.processes import Cluster, eventually


def test_a_second_put_is_admitted():
    with closing(Cluster("shm", nodes=1, admission="second-put")) as cluster:
        assert cluster.client.put("key", b"value") is PutResult.NOT_ADMITTED
        assert cluster.client.put("key", b"value") is PutResult.STORED
        assert cluster.stats().not_admitted == 1


def test_what_was_put_first_goes_first_where_that_is_the_policy():
    options = {"eviction": "fifo"}
    with closing(Cluster("shm", nodes=1, capacity="4 MiB", **options)) as cluster:
        value = bytes(900_000)
        cluster.client.batch_put((f"{number}", value) for number in range(4))
        assert cluster.client.get("0") == value  # makes no difference
        assert cluster.client.get("none") is None  # and ends the lease of the one before
        assert cluster.client.put("4", value)
        assert cluster.there(*map(str, range(5))) == [False, True, True, True, True]


def test_a_large_object_is_spread_in_stripes_over_the_nodes_in_turn():
    options = {"stripe": "256 KiB", "placement": "round-robin"}
    with closing(Cluster("shm", **options)) as cluster:
        value = bytes(range(256)) * 4096
        assert cluster.client.put("striped", value)
        assert cluster.client.get("striped") == value
        used = [node.used_bytes for node in cluster.stats().nodes]
        assert used[0] == used[1] >= 1 << 19


def test_what_is_hot_is_copied():
    options = {"hot_gets_per_s": 20, "hot_replicas": 2, "heat_half_life_s": 1}
    with closing(Cluster("shm", **options)) as cluster:
        client = cluster.client

        def copies(key):
            assert client.get(key) is not None
            return len(client.describe([key])[0].copies)

        assert client.put("hot", bytes(10_000))
        eventually(lambda: copies("hot") == 2, "a copy of what is hot")
        assert cluster.stats().hot_copies == 1


@pytest.mark.parametrize("repairs", [True, False])
def test_what_has_lost_a_copy_gets_another_where_that_is_wanted(repairs):
    with closing(Cluster("shm", nodes=3, repairs=repairs)) as cluster:
        client = cluster.client
        assert client.put("twice", b"value", options=PutOptions(replicas=2))
        (described,) = client.describe(["twice"])
        lost = described.copies[0]
        cluster.nodes[int(lost.removeprefix("node-"))].kill()
        eventually(lambda: cluster.stats().lost_nodes == 1, "the node is lost")
        if repairs:
            eventually(lambda: cluster.stats().repaired_copies == 1, "another copy")
        else:
            assert cluster.stats().copy_orders == cluster.stats().repaired_copies == 0
        assert client.get("twice") == b"value"
        assert len(client.describe(["twice"])[0].copies) == 1 + repairs
