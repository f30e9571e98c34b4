"""A store of real processes on loopback."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from mooncake_core.config import TransferConfig
from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.errors import StoreUnavailable
from mooncake_core.store import StoreClient
from mooncake_core.transfer import TransferEngine

ROOT = Path(__file__).resolve().parents[2]
TTL_S = 1.0


def eventually(condition, what, timeout_s=20.0):
    """Poll `condition` until it holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)


def await_stopped(pid):
    """Wait until nothing of a process runs any more that was sent SIGSTOP.

    The kernel stops its threads only once one of them has run again to hear of it.
    """

    def is_stopped():
        states = []
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        return all(state in "TZX" for state in states)

    eventually(is_stopped, f"process {pid} stops")


class Process:
    """A daemon of tests/store/daemon.py; its lines are JSON."""

    def __init__(self, kind, **config):
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.store.daemon", kind, json.dumps(config)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self):
        line = self.child.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def tell(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def signal(self, number):
        """Send a signal. After SIGSTOP nothing of the process runs any more."""
        self.child.send_signal(number)
        if number == signal.SIGSTOP:
            await_stopped(self.child.pid)

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


class Cluster:
    """A master and nodes, and clients in this process."""

    def __init__(self, same_host, *, nodes=2, capacity="4 MiB", ttl_s=TTL_S, **master):
        self.transfer = {"same_host": same_host}
        self.master_config = master
        self.capacity, self.ttl_s = capacity, ttl_s
        self.processes, self.clients = [], []
        self.launched = 0
        self.start_master("127.0.0.1:0")
        self.nodes = [self.launch_node() for _ in range(nodes)]
        for node in self.nodes:
            node.hear()
        self.client = self.new_client()
        self.await_nodes(nodes)

    def start_master(self, listen):
        self.master = self.run(
            "master",
            listen=listen,
            admin="127.0.0.1:0",
            client_ttl_s=self.ttl_s,
            **{"lease_s": 2.0, **self.master_config},
        )
        addresses = self.master.hear()
        self.rpc, self.admin = addresses["rpc"], addresses["admin"]

    def launch_node(self, **config):
        name = f"node-{self.launched}"
        self.launched += 1
        return self.run(
            "node",
            master=self.rpc,
            capacity=self.capacity,
            transfer=self.transfer,
            name=name,
            **{"domain": name, **config},
        )

    def start_node(self):
        self.launch_node().hear()

    def start_writer(self, key, parts=2, part_bytes=512 << 10):
        writer = self.run(
            "writer",
            master=self.rpc,
            transfer=self.transfer,
            key=key,
            parts=parts,
            part_bytes=part_bytes,
        )
        assert writer.hear() == "started"
        return writer

    def run(self, kind, **config):
        process = Process(kind, **config)
        self.processes.append(process)
        return process

    def new_client(self, **config):
        engine = TransferEngine(TransferConfig(**self.transfer))
        client = StoreClient(engine, StoreClientConfig(master=self.rpc, **config))
        client.engine = engine
        self.clients.append(client)
        return client

    def stats(self):
        try:
            return self.client.stats()
        except StoreUnavailable:
            return None

    def await_nodes(self, count):
        eventually(lambda: self._are_online(count), f"{count} nodes")

    def _are_online(self, count):
        stats = self.stats()
        return stats is not None and [node.state for node in stats.nodes] == ["online"] * count

    def there(self, *keys):
        """Return for each key whether it is there, asked while no node is suspected.

        A node that the machine keeps from running for a moment may be, and its objects are not
        there until it is heard again.
        """
        count = len(self.client.stats().nodes)
        while True:
            self.await_nodes(count)
            there = self.client.batch_exists(keys)
            if self._are_online(count):
                return there

    def close(self):
        for client in self.clients:
            client.close()
            client.engine.close()
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.kill()
