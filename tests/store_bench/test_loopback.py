"""A store that a benchmark starts for itself."""

from mooncake_core.config import StoreClientConfig, TransferConfig
from mooncake_core.store import StoreClient
from mooncake_core.store_bench.loopback import LoopbackStore
from mooncake_core.transfer import TransferEngine


def test_its_nodes_take_a_copy_each() -> None:
    transfer = TransferConfig()
    with LoopbackStore(nodes=2, capacity_bytes=1 << 20, transfer=transfer) as store:
        engine = TransferEngine(transfer)
        client = StoreClient(engine, StoreClientConfig(master=store.master, replicas=2))
        writer = client.open_write("key", size_bytes=4)
        assert writer is not None and writer.replicas == 2
        writer.abort()
        client.close()
        engine.close()
        assert len({store.master_pid, *store.node_pids}) == 3
