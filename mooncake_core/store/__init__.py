"""The store of KV blocks: the client, and the shells of master and node."""

from mooncake_core.store.client import ObjectReader, ObjectWriter, StoreClient
from mooncake_core.store.stats import ClusterStats, NodeStats

__all__ = ["ClusterStats", "NodeStats", "ObjectReader", "ObjectWriter", "StoreClient"]
