"""Rounds of puts, removals, evictions and dying clients: `python -m tests.store.fire.churn`.

Afterwards every byte is back, and no process has grown.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.store import wire
from tests.store.fire.cast import new_churner, new_master, new_node, new_stepper
from tests.store.fire.link import Link, Watcher
from tests.store.processes import eventually

KIB, MIB = 1 << 10, 1 << 20
TTL_S = 1.0
CAPACITY = 8 * MIB
A_TURN = 25
MOST_GROWTH = {"resident_bytes": 2 * MIB, "files": 0, "threads": 0}


class Churn:
    """One run; `run` returns what was found."""

    def __init__(self, rounds, *, kill_every, same_host="shm"):
        self.count, self.kill_every = rounds, kill_every
        self.master = new_master(
            listen="127.0.0.1:0", admin="127.0.0.1:0", client_ttl_s=TTL_S, lease_s=1.0
        )
        self.rpc = self.master.start()["rpc"]
        self.node = new_node(master=self.rpc, capacity=f"{CAPACITY // MIB} MiB", name="node")
        self.node.start()
        config = {"transfer": {"same_host": same_host}, "client": {"master": self.rpc}}
        self.churner = new_churner(**config, size=MIB, parts=1)
        self.churner.start()
        self.victim = new_stepper(**config, size=64 * KIB, parts=4)
        self._launch_victim()
        self.watcher = Watcher(self.rpc)
        eventually(lambda: self.watcher.stats().nodes, "the node is there")

    def run(self):
        """Make all rounds; return the problems, and the size of each process now and then."""
        problems, sizes = [], {}
        for first in range(0, self.count, A_TURN):
            if first % (self.count // 4) < A_TURN:
                sizes[first] = self._sizes()
            answer = self.churner.tell(["rounds", [first, A_TURN]])
            problems += answer.get("value", [answer])
            for number in range(first, first + A_TURN):
                self._vanish(number)
            if first % self.kill_every == 0:
                self._kill(first)
        sizes[self.count] = self._sizes()
        problems += self._growth(sizes[min(first for first in sizes if first)], sizes[self.count])
        eventually(self._is_empty, "all space is free again")
        return problems, sizes

    def _vanish(self, number):
        """Begin a put in a session of its own, and never be heard of again."""
        link = Link(self.rpc)
        session = link.ask(wire.Hello(0, peer_id=1000 + number)).session
        item = wire.PutItem(number, b"vanished-%d" % number, 1000)
        reply = link.ask(wire.put_start(session, item))
        assert reply.items[0].outcome == wire.STARTED, reply
        link.close()

    def _kill(self, number):
        """Kill a client while it writes, and let the next one start."""
        self._await_victim()
        opened = self.victim.tell(["open_write", [f"killed-{number}"]])
        assert opened == {"value": True}, opened
        self.victim.say(["write_part", [0]])
        self.victim.kill()
        self._launch_victim()

    def _launch_victim(self):
        self.victim.launch()
        self.is_victim_there = False

    def _await_victim(self):
        if not self.is_victim_there:
            assert self.victim.hear() == "ready"
            assert self.victim.tell(["get", ["nothing", 0]]) == {"value": None}
            self.is_victim_there = True

    def _sizes(self):
        self._await_victim()
        eventually(lambda: self.watcher.stats().clients == 2, "who has vanished is given up")
        eventually(lambda: self.watcher.stats().space.quarantined == 0, "and fenced")
        processes = {"master": self.master, "node": self.node, "client": self.churner}
        return {name: _size(child.process.pid) for name, child in processes.items()}

    def _growth(self, before, after):
        for name in before:
            for what, most in MOST_GROWTH.items():
                if after[name][what] > before[name][what] + most:
                    yield f"{name}: {what} grew from {before[name]} to {after[name]}"

    def _is_empty(self):
        self.churner.tell(["remove_all", []])
        stats = self.watcher.stats()
        space = stats.space
        return not any((stats.objects, stats.writing, stats.leases, space.used, space.quarantined))

    def close(self):
        """End every process."""
        self.watcher.close()
        for child in (self.victim, self.churner, self.node, self.master):
            child.close()


def _size(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {
        "resident_bytes": int(fields["VmRSS"].split()[0]) * KIB,
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(fields["Threads"]),
    }


def main():
    """Print what was found as JSON; 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--kill-every", type=int, default=A_TURN)
    parser.add_argument("--same-host", default="shm", choices=["shm", "network"])
    given = parser.parse_args()
    churn = Churn(given.rounds, kill_every=given.kill_every, same_host=given.same_host)
    try:
        problems, sizes = churn.run()
    finally:
        churn.close()
    print(json.dumps({"sizes_after_rounds": sizes, "wrong": problems}, indent=2))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
