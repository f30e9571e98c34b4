"""The store of KV blocks: the client, and the shells of master and node."""

from mooncake_core.store.client import StoreClient
from mooncake_core.store.described import ObjectDescription
from mooncake_core.store.objects import ObjectReader, ObjectView, ObjectWriter
from mooncake_core.store.options import Key, Link, PinKind, PutOptions, PutResult
from mooncake_core.store.stats import ClusterStats, NodeStats
from mooncake_core.store.tasks import StoreAdmin, TaskStatus

__all__ = [
    "ClusterStats",
    "Key",
    "Link",
    "NodeStats",
    "ObjectDescription",
    "ObjectReader",
    "ObjectView",
    "ObjectWriter",
    "PinKind",
    "PutOptions",
    "PutResult",
    "StoreAdmin",
    "StoreClient",
    "TaskStatus",
]
