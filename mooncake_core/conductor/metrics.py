"""What the conductor counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mooncake_core.conductor.cluster import Cluster
from mooncake_core.messages import PrefillResult

_TTFT_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_TBT_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class ConductorMetrics:
    """All metrics of one conductor, in a registry of its own."""

    def __init__(self, cluster: Cluster, now_s: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "mooncake_requests",
            "Requests by endpoint and how they ended.",
            ["endpoint", "outcome"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "mooncake_requests_in_flight", "Requests being served.", registry=self.registry
        )
        self.ttft_s = Histogram(
            "mooncake_ttft_seconds",
            "From a request's arrival to its first token.",
            buckets=_TTFT_S,
            registry=self.registry,
        )
        self.ttft_error_s = Histogram(
            "mooncake_ttft_estimate_error_seconds",
            "Time to the first token less what was estimated.",
            buckets=(-10, -5, -2, -1, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1, 2, 5, 10),
            registry=self.registry,
        )
        self.queue_s = Histogram(
            "mooncake_queue_seconds",
            "Waiting at prefill.",
            buckets=_TTFT_S,
            registry=self.registry,
        )
        self.tbt_s = Histogram(
            "mooncake_tbt_seconds",
            "Between two tokens of an answer.",
            buckets=_TBT_S,
            registry=self.registry,
        )
        self._prompt_tokens = Counter(
            "mooncake_prompt_tokens", "Prompt tokens read.", registry=self.registry
        )
        self._cached_tokens = Counter(
            "mooncake_cached_tokens",
            "Prompt tokens whose KV was reused, by where it was.",
            ["tier"],
            registry=self.registry,
        )
        self.completion_tokens = Counter(
            "mooncake_completion_tokens", "Answer tokens written.", registry=self.registry
        )
        self._prompts = 0
        self._cached = 0
        Gauge(
            "mooncake_hit_rate", "Share of prompt tokens that were reused.", registry=self.registry
        ).set_function(lambda: self.hit_rate)
        self.registry.register(_InstanceGauges(cluster, now_s))

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens read so far."""
        return self._prompts

    @property
    def cached_tokens(self) -> int:
        """How many of them were reused."""
        return self._cached

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were reused; 0 before the first."""
        return self._cached / self._prompts if self._prompts else 0.0

    def prefilled(self, prompt_tokens: int, result: PrefillResult) -> None:
        """Count one prefill."""
        self._prompts += prompt_tokens
        self._cached += result.cached_tokens
        self._prompt_tokens.inc(prompt_tokens)
        self._cached_tokens.labels("local").inc(max(0, result.local_tokens))
        self._cached_tokens.labels("store").inc(max(0, result.store_tokens))
        self.queue_s.observe(max(0.0, result.queue_s))


class _InstanceGauges(Collector):
    """One sample an instance, read from the table when asked."""

    def __init__(self, cluster: Cluster, now_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._now_s = now_s

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges."""
        now_s = self._now_s()
        view = self._cluster.view(now_s)
        gauges = {
            name: GaugeMetricFamily(f"mooncake_instance_{name}", text, labels=["instance", "role"])
            for name, text in (
                ("up", "1 for each instance in use."),
                ("queue_seconds", "Estimated wait at a prefill instance."),
                ("running", "Requests that a decode instance has been given."),
                ("free_pages", "Pages that a decode instance can still reserve."),
            )
        }
        for prefill in view.prefills:
            labels = [prefill.instance_id, "prefill"]
            gauges["up"].add_metric(labels, 1)
            gauges["queue_seconds"].add_metric(labels, prefill.queue_s)
        for decode in view.decodes:
            labels = [decode.instance_id, "decode"]
            gauges["up"].add_metric(labels, 1)
            gauges["running"].add_metric(labels, decode.running)
            gauges["free_pages"].add_metric(labels, decode.free_pages)
        return gauges.values()
