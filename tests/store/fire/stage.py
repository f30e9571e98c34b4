"""A store with one node, and clients that can be stopped in the middle of what they do."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

from tests.store.fire.cast import new_stepper
from tests.store.fire.moments import Progress, await_unread
from tests.store.fire.relay import Relay
from tests.store.fire.stepper import content
from tests.store.processes import Cluster, eventually

KIB, MIB = 1 << 10, 1 << 20
CAPACITY = 64 * MIB
FILLER = 256 * KIB
TTL_S = 2.0
PLACES = CAPACITY // (FILLER + 64)


class Stage:
    """Ends every process when it is closed."""

    def __init__(self, same_host, ttl_s=TTL_S):
        self.same_host = same_host
        self.cluster = Cluster(same_host, nodes=1, capacity=f"{CAPACITY // MIB} MiB", ttl_s=ttl_s)
        self.client = self.cluster.client
        self.way = Relay(self.cluster.rpc)  # over TCP, where it can be seen what waits
        self.steppers = []

    @property
    def is_network(self):
        return self.same_host == "network"

    def new_steppers(self, *sizes):
        """Return clients for objects of these many parts and bytes; they have said hello."""
        new = [
            new_stepper(
                transfer=self.cluster.transfer,
                client={"master": self.way.endpoint},
                size=size,
                parts=parts,
            )
            for parts, size in sizes
        ]
        self.steppers += new
        for stepper in new:
            stepper.launch()
        for stepper in new:
            assert stepper.hear() == "ready"
            assert stepper.tell(["get", ["nothing", 0]]) == {"value": None}
        return new

    @contextmanager
    def still(self, process):
        """Let the master or the node stand still."""
        process.signal(signal.SIGSTOP)
        yield
        process.signal(signal.SIGCONT)

    def await_question(self, size):
        """Wait until a question of more than so many bytes waits for the master."""
        await_unread(_port(self.cluster.rpc), size)

    @property
    def node(self):
        return self.client.stats().nodes[0]

    def await_request(self):
        """Wait until a request waits for the node."""
        await_unread(_port(self.node.endpoint), 0)

    def progress(self):
        """Return how much of the node's memory has been written."""
        return Progress(self.client.engine, self.node.endpoint, int(self.node.id, 16), CAPACITY)

    def progress_of(self, stepper, size):
        """Return how much of the memory that a client reads into has been written."""
        endpoint, segment_id = stepper.tell(["where", []])["value"]
        return Progress(self.client.engine, endpoint, segment_id, size)

    def await_expelled(self, count):
        """Wait until the master has given up so many clients in all."""
        eventually(lambda: self.client.stats().expired_sessions >= count, f"{count} are expelled")

    def there(self, *keys):
        """Return for each whether it is there, asked while the node is not suspected."""
        return self.cluster.there(*keys)

    def fill(self, name, count=PLACES + PLACES // 4):
        """Put so many objects, more than there is room for."""
        for number in range(count):
            key = f"{name}-{number}"
            assert self.client.put(key, content(key, FILLER))

    def verify(self, name, client=None, count=PLACES + PLACES // 4):
        """Read them all; return how many are there."""
        hits = 0
        for number in range(count):
            key = f"{name}-{number}"
            value = self._get(key, client or self.client)
            assert value in (None, content(key, FILLER)), f"{key} has other bytes"
            hits += value is not None
        return hits

    def _get(self, key, client):
        """Read it; a miss while the node is suspected for a moment is none."""
        while (value := client.get(key)) is None and self.node.state == "suspected":
            self.cluster.await_nodes(1)
        return value

    @contextmanager
    def watched(self, name):
        """Read them again and again meanwhile."""
        done, faults, client = threading.Event(), [], self.cluster.new_client()

        def read():
            try:
                while not done.is_set():
                    self.verify(name, client)
            except AssertionError as error:
                faults.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        assert faults == []
        assert client.read_faults["corrupt"] == 0

    def close(self):
        """End it all."""
        for stepper in self.steppers:
            stepper.close()
        self.way.close()
        self.cluster.close()


def _port(address):
    return int(address.rsplit(":", 1)[1])
