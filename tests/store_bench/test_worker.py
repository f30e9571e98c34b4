"""A client process of a benchmark."""

import threading

from mooncake_core.config import StoreClientConfig, TransferConfig
from mooncake_core.store import StoreClient
from mooncake_core.store_bench.loopback import LoopbackStore
from mooncake_core.store_bench.messages import Prepare, Start
from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.store_bench.plan import Case
from mooncake_core.store_bench.worker import Worker
from mooncake_core.transfer import TransferEngine


def test_one_that_is_told_to_end_fills_no_further() -> None:
    case = Case(operation="get", size_bytes=4096, batch=1, threads=1)
    with LoopbackStore(nodes=1, capacity_bytes=1 << 22, transfer=TransferConfig()) as store:
        config = StoreBenchConfig(keys=100)
        engine = TransferEngine(TransferConfig())
        client = StoreClient(engine, StoreClientConfig(master=store.master))
        start = Start(config=config, master=store.master, client=0, prefix="mine")
        for is_told, filled in ((False, 100), (True, 0)):
            stop = threading.Event()
            worker = Worker(start, stop)
            if is_told:
                stop.set()
            worker.carry_out(Prepare(case=case))
            assert client.stats().objects == filled
            worker.close()
        client.close()
        engine.close()
