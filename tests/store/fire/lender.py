"""A store node of this process, behind a relay: it can live on and answer no reader."""

from __future__ import annotations

import threading

from mooncake_core.config import TransferConfig
from mooncake_core.transfer import TransferEngine
from tests.store import wire
from tests.store.fire.link import Link
from tests.store.fire.relay import Relay


class Lender:
    """Speaks to the master for as long as it is open, whatever the relay does."""

    def __init__(self, master, capacity, ttl_s):
        self.engine = TransferEngine(TransferConfig(same_host="network"))
        self.segment = self.engine.create_segment(capacity)
        self.relay = Relay(self.engine.endpoint)
        self.link, self.closing = Link(master), threading.Event()
        self.node = self.segment.id
        epoch = self.link.ask(wire.NodeHeartbeat(0)).epoch
        endpoint = self.relay.endpoint.encode()
        hello = wire.register(self.node, epoch, endpoint, capacity, name=b"lender")
        assert self.link.ask(hello).is_known
        self.thread = threading.Thread(target=self._live, args=(ttl_s / 4,))
        self.thread.start()

    def _live(self, period_s):
        while not self.closing.wait(period_s):
            assert self.link.ask(wire.NodeHeartbeat(self.node)).is_known

    def close(self):
        """Leave without a word."""
        self.closing.set()
        self.thread.join()
        self.link.close()
        self.relay.close()
        self.segment.close()
        self.engine.close()
