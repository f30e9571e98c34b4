"""What is dropped without being closed, and what the death of others leaves behind."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from mooncake_core.config import TransferConfig
from mooncake_core.native import _native
from mooncake_core.transfer import TransferEngine
from tests.store.processes import Cluster, eventually


class Heart:
    """A thread that beats as often as it gets the interpreter's lock."""

    def __init__(self):
        self.longest_s, self._is_over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self):
        last = time.monotonic()
        while not self._is_over.wait(0.001):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()


def test_a_node_that_is_dropped_keeps_no_other_thread_waiting():
    engine = TransferEngine(TransferConfig())
    with socket.create_server(("127.0.0.1", 0)) as mute:  # a master that never answers
        master = "{}:{}".format(*mute.getsockname())
        node = _native.StoreNode.start(engine.native, master=master, capacity_bytes=4096)
        asking, _ = mute.accept()
        with asking, Heart() as heart:
            begun = time.monotonic()
            del node
            took_s = time.monotonic() - begun
    assert took_s > 1.0, "the node was not asking"
    assert heart.longest_s < took_s / 2
    engine.close()


def mapped():
    return Path("/proc/self/maps").read_text().count("mooncake-segment")


@pytest.mark.cluster
def test_a_dead_nodes_memory_is_let_go_of_without_being_asked():
    cluster = Cluster("shm", nodes=2)
    try:
        before = mapped()
        assert all(cluster.client.put(f"key-{number}", b"x" * 9_000) for number in range(20))
        assert mapped() > before + 1
        for node in cluster.nodes:
            node.kill()
        eventually(lambda: mapped() == before, "all is unmapped")
    finally:
        cluster.close()
