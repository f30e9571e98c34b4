"""Everything that the master counts is on its /metrics and in its /status, and says what it is."""

from __future__ import annotations

import json
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from mooncake_core.config.describe import field_docs
from mooncake_core.store.stats import COUNTERS, ClusterStats
from tests.store.processes import eventually


def fetch(cluster, path):
    with urllib.request.urlopen(f"http://{cluster.admin}{path}", timeout=10) as answer:
        return answer.read().decode()


def test_every_figure_has_a_docstring():
    assert set(field_docs(ClusterStats)) == set(ClusterStats.__struct_fields__)
    assert set(COUNTERS) <= set(ClusterStats.__struct_fields__)


def test_metrics_and_status_have_every_figure(quiet_cluster):
    client = quiet_cluster.client
    client.put("metric", bytes(1000))
    client.get("metric")
    client.get("no metric")
    status = json.loads(fetch(quiet_cluster, "/status"))
    assert set(status) == set(ClusterStats.__struct_fields__)
    families = {
        family.name: family
        for family in text_string_to_metric_families(fetch(quiet_cluster, "/metrics"))
    }
    for name in set(status) - {"epoch", "nodes"}:
        family = families[f"mooncake_store_{name}"]
        assert family.type == ("counter" if name in COUNTERS else "gauge")
        assert family.documentation.endswith(".")
        assert name in ("leases", "clients") or family.samples[0].value >= 0
    assert families["mooncake_store_puts"].samples[0].value >= 1
    assert families["mooncake_store_hits"].samples[0].value >= 1
    assert families["mooncake_store_misses"].samples[0].value >= 1
    states = {each.labels["state"]: each.value for each in families["mooncake_store_nodes"].samples}
    assert states == {"online": 2, "suspected": 0, "draining": 0}
    assert {each.labels["name"] for each in families["mooncake_store_node_used_bytes"].samples} == {
        "node-0",
        "node-1",
    }
    assert client.remove("metric")
    eventually(lambda: client.stats().objects == 0, "the store is empty")
