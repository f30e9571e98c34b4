"""The master's stats as Prometheus has them: every field of ClusterStats and of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mooncake_core.config.describe import field_docs
from mooncake_core.store.stats import COUNTERS, NODE_STATES, ClusterStats

_NAMED = frozenset({"epoch", "nodes"})
"""What is not a number that changes."""
_NODE_BYTES = ("capacity_bytes", "used_bytes", "quarantined_bytes")
_PREFIX = "mooncake_store"


class StatsCollector(Collector):
    """One reading of the stats, as metrics; their help is the fields' docstrings."""

    def __init__(self, stats: ClusterStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yield every counter and gauge, and each node's bytes and state."""
        helps = {name: " ".join(doc.split()) for name, doc in field_docs(ClusterStats).items()}
        for name in ClusterStats.__struct_fields__:
            if name not in _NAMED:
                kind = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
                yield kind(f"{_PREFIX}_{name}", helps[name], value=getattr(self._stats, name))
        yield from self._of_nodes()

    def _of_nodes(self) -> Iterator[Metric]:
        count = GaugeMetricFamily(f"{_PREFIX}_nodes", "Store nodes by state.", labels=["state"])
        for state in NODE_STATES:
            count.add_metric([state], sum(node.state == state for node in self._stats.nodes))
        yield count
        for name in _NODE_BYTES:
            values = [float(getattr(node, name)) for node in self._stats.nodes]
            yield self._of_each(name, f"{name} of a node.", values)
        online = "1: it takes and gives objects; 0: it is suspected to be lost, or draining."
        states = [float(node.state == "online") for node in self._stats.nodes]
        yield self._of_each("online", online, states)

    def _of_each(self, name: str, what: str, values: list[float]) -> Metric:
        gauge = GaugeMetricFamily(f"{_PREFIX}_node_{name}", what, labels=["endpoint", "name"])
        for node, value in zip(self._stats.nodes, values, strict=True):
            gauge.add_metric([node.endpoint, node.name], value)
        return gauge
