"""What instances count, as Prometheus sees it. Every process has a registry of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mooncake_core.cache.page_table import PageState, PageTable

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class InstanceMetrics:
    """What both kinds have."""

    def __init__(self, table: PageTable) -> None:
        self.registry = CollectorRegistry()
        pages = Gauge("mooncake_pages", "Pages of the KV pool", ["state"], registry=self.registry)
        for state in PageState:
            pages.labels(state.name.lower()).set_function(_count(table, state))

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show what `read` returns whenever somebody looks."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def render(self) -> tuple[bytes, str]:
        """Return the text of all metrics and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter."""
        return Counter(name, text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        """Return a new histogram."""
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)


class PrefillMetrics(InstanceMetrics):
    """Of a prefill instance."""

    def __init__(self, table: PageTable) -> None:
        super().__init__(table)
        self.requests = self.counter("mooncake_prefill_requests", "By how they ended", "outcome")
        self.tokens = self.counter(
            "mooncake_prefill_tokens", "Prompt tokens, by where their KV came from", "source"
        )
        self.seconds = self.histogram(
            "mooncake_prefill_seconds", "Of a request, by what it waited for", "phase"
        )
        self.identities = self.counter(
            "mooncake_prefill_identities", "New peer ids taken after being fenced"
        )


class DecodeMetrics(InstanceMetrics):
    """Of a decode instance."""

    def __init__(self, table: PageTable) -> None:
        super().__init__(table)
        self.requests = self.counter("mooncake_decode_requests", "By how they ended", "outcome")
        self.tokens = self.counter("mooncake_decode_tokens", "Tokens written")
        self.batch_size = self.histogram(
            "mooncake_decode_batch_size", "Sequences a step", buckets=_BATCHES
        )
        self.step_seconds = self.histogram(
            "mooncake_decode_tbt_seconds", "Of a step: the time between two tokens"
        )
        self.checksum_failures = self.counter(
            "mooncake_decode_checksum_failures", "Prompts whose KV was not what prefill sent"
        )
        self.fences = self.counter("mooncake_decode_fences", "Writers that were fenced")


def _count(table: PageTable, state: PageState) -> Callable[[], float]:
    return lambda: table.count(state)
