"""Nodes: they lend memory, fence who is told to them, and come and go."""

from __future__ import annotations

from tests.store import wire


class StoreNode:
    """One node; its memory dies with it."""

    def __init__(self, world, endpoint, name, host, domain):
        self.world, self.rng = world, world.rng
        self.endpoint, self.name, self.host, self.domain = endpoint, name, host, domain
        self.node = world.fresh()
        self.capacity = world.settings.capacity
        self.silent_until_s = self.beat_s = 0.0
        self.fenced = []
        self.orders, self.results = {}, {}
        self.is_refused = False
        self.register()

    def register(self):
        """Offer the memory; that of an earlier master first, now and then."""
        is_old = self.rng.random() < 0.05
        epoch = self.world.settings.epoch - is_old
        message = wire.NodeRegister(
            self.node, epoch, self.endpoint, self.host, self.name, self.domain, self.capacity
        )
        reply = self.world.deliver(message)
        if is_old:
            message.epoch = reply.epoch
            reply = self.world.deliver(message)
        self.world.may_say_again(message)
        self.heard(reply)

    def heard(self, reply):
        """Take new memory if the master does not know this any more; else fence."""
        self.beat_s = self.world.now_s
        self.fenced = []
        if reply.refusal == wire.NAME_TAKEN:  # it asks again later, as long as it wants that name
            self.is_refused = True
            if self.rng.random() < 0.3:
                self.world.nodes.pop(self.node, None)
            return
        self.is_refused = False
        if not reply.is_known:
            del self.world.nodes[self.node]
            again = StoreNode(self.world, self.endpoint, self.name, self.host, self.domain)
            self.world.nodes[again.node] = again
            return
        fence = self.world.settings.fence
        self.fenced = [peer for peer in reply.fence if self.rng.random() < fence]
        self.orders = {order.order: order for order in reply.orders}
        self.results = {
            number: self.results[number] for number in self.results if number in self.orders
        }

    def beat(self):
        """Say what is fenced; the master asks again until it has heard."""
        self.beat_s = self.world.now_s
        if self.is_refused:
            self.register()
            return
        for order in self.orders.values():
            if order.order not in self.results and self.rng.random() < self.world.settings.fetch:
                self.results[order.order] = self.carry_out(order)
        results = list(self.results.values())
        reply = self.world.say(wire.NodeHeartbeat(self.node, self.fenced, results))
        if reply:
            self.heard(reply)

    def carry_out(self, order):
        """Fetch a stripe, which may not work."""
        sources = [node for node, _ in wire.sources(order)]
        corrupt = [node for node in sources if self.rng.random() < 0.05]
        is_done = len(corrupt) < len(sources) and self.rng.random() < 0.9
        return wire.CopyResult(order.order, is_done, corrupt)
