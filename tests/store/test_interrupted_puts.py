"""A client, the node or the master is killed or stands still at each step of a put.

Whatever happens, nobody reads a wrong byte, the keys can be put again, and every byte comes back.
"""

from __future__ import annotations

import signal
import time

import pytest

from tests.store.fire.cast import new_stepper
from tests.store.fire.moments import Progress
from tests.store.fire.relay import Relay
from tests.store.fire.stepper import content
from tests.store.processes import TTL_S, Cluster, eventually

pytestmark = pytest.mark.cluster

MIB = 1 << 20
CAPACITY = 32 * MIB
PARTS = 4
SIZES = {
    "granted": MIB,  # nothing is written
    "half": MIB,  # two parts are
    "whole": MIB,  # all are
    "replacing": MIB,  # as half, of a key that has an older value
    "committed": MIB,  # the master knows it, its answer has not been heard
    "writing": 8 * MIB,  # and will then be committed
}
OLD = 1000  # bytes of the older value
UNFINISHED = ("granted", "half", "whole")
EMPTY = (0, 0, 0)


class Scene:
    """One node, and a writer for each step; the answers to one of them can be held back."""

    def __init__(self, same_host):
        self.cluster = Cluster(same_host, nodes=1, capacity=f"{CAPACITY // MIB} MiB")
        self.client = self.cluster.client
        self.relay = Relay(self.cluster.rpc)
        self.writers = {step: self._new_writer(step, size) for step, size in SIZES.items()}
        self.names = 0
        self.start_writers()

    def _new_writer(self, step, size):
        master = self.relay.endpoint if step == "committed" else self.cluster.rpc
        return new_stepper(
            transfer=self.cluster.transfer, client={"master": master}, size=size, parts=PARTS
        )

    def start_writers(self):
        """Start all of them anew; they have said hello."""
        for writer in self.writers.values():
            writer.launch()
        for writer in self.writers.values():
            assert writer.hear() == "ready"
            assert writer.tell(["get", ["nothing", 0]]) == {"value": None}

    @property
    def node(self):
        return self.cluster.nodes[0]

    def key(self, step):
        return f"{step}-{self.names}"

    def is_right(self, step):
        return self.client.get(self.key(step)) == content(self.key(step), SIZES[step])

    def is_old(self):
        """Whether the value that was to be replaced is still there."""
        return self.client.get(self.key("replacing")) == content(self.key("replacing"), OLD)

    def begin(self):
        """Let each put a new key and come to its step; a write is under way when this returns."""
        self.names += 1
        assert self.used() == EMPTY
        assert self.client.put(self.key("replacing"), content(self.key("replacing"), OLD))
        for step, writer in self.writers.items():
            opened = writer.tell(["open_write", [self.key(step), step == "replacing"]])
            assert opened == {"value": True}
        half = [(step, (2, 0)) for step in ("half", "replacing")]
        for step, parts in (*half, ("whole", range(PARTS)), ("committed", range(PARTS))):
            for part in parts:
                assert self.writers[step].tell(["write_part", [part]]) == {"value": None}
        self.relay.hold_answers()
        self.writers["committed"].say(["commit", []])
        eventually(lambda: self.client.exists(self.key("committed")), "it is committed")
        node = self.client.stats().nodes[0]
        progress = Progress(self.client.engine, node.endpoint, int(node.id, 16), CAPACITY)
        self.writers["writing"].say(["write_and_commit", [[*range(PARTS)]]])
        progress.await_change()
        progress.close()

    def say_go_on(self):
        """Let each do what is left of its put."""
        self.relay.resume()
        rest = {"granted": range(PARTS), "half": (1, 3), "replacing": (1, 3), "whole": ()}
        for step, parts in rest.items():
            self.writers[step].say(["write_and_commit", [[*parts]]])

    def hear_ends(self):
        """Return for each step whether its put says that it is stored; None: an error."""
        return {step: writer.hear().get("value") for step, writer in self.writers.items()}

    def used(self):
        stats = self.client.stats()
        return (stats.used_bytes, stats.quarantined_bytes, stats.writing)

    def assert_nothing_is_wrong(self, stored=()):
        """Each key has its value or none; those that are stored have it."""
        for step, size in SIZES.items():
            lawful = [content(self.key(step), size), None]
            lawful += [content(self.key(step), OLD)] * (step == "replacing")
            assert self.client.get(self.key(step)) in lawful, f"{step} has other bytes"
        wrong = [step for step in stored if not self.is_right(step)]
        assert wrong == []
        assert self.client.stats().corrupt == 0

    def put_again(self):
        """Let each writer put its key again, whatever came of it, and see that it is there."""
        for step, writer in self.writers.items():
            how = "upsert" if step == "replacing" else "put"
            answer = writer.tell([how, [self.key(step), SIZES[step]]])
            assert "value" in answer, answer
        assert [step for step in SIZES if not self.is_right(step)] == []

    def assert_all_comes_back(self):
        self.client.batch_remove([self.key(step) for step in SIZES])
        eventually(lambda: self.used() == EMPTY, "every byte is free again")

    def close(self):
        self.relay.resume()
        for writer in self.writers.values():
            writer.close()
        self.cluster.close()
        self.relay.close()


@pytest.fixture(scope="module", params=["shm", "network"])
def scene(request):
    scene = Scene(request.param)
    yield scene
    scene.close()


def pass_time(seconds):
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > end, "time passes")


def test_clients_that_die_leave_nothing_but_what_they_have_committed(scene):
    scene.begin()
    for writer in scene.writers.values():
        writer.kill()
    eventually(lambda: scene.client.stats().writing == 0, "what they wrote is given up")
    eventually(lambda: scene.client.stats().quarantined_bytes == 0, "they are fenced")
    scene.assert_nothing_is_wrong(stored=["committed"])
    assert scene.is_old()
    for step in UNFINISHED:
        assert scene.client.get(scene.key(step)) is None
        assert scene.client.put(scene.key(step), content(scene.key(step), SIZES[step]))
        assert scene.is_right(step)
    scene.relay.resume()
    scene.start_writers()
    scene.put_again()
    scene.assert_all_comes_back()


def test_clients_that_were_given_up_change_nothing_when_they_go_on(scene):
    scene.begin()
    for writer in scene.writers.values():
        writer.stop()
    eventually(lambda: scene.client.stats().writing == 0, "what they wrote is given up")
    for step in UNFINISHED:
        assert scene.client.put(scene.key(step), content(scene.key(step), SIZES[step]))
    for writer in scene.writers.values():
        writer.resume()
    scene.say_go_on()
    ends = scene.hear_ends()
    assert [ends[step] for step in (*UNFINISHED, "replacing")] == [None] * 4
    scene.assert_nothing_is_wrong(stored=["committed", *UNFINISHED])
    assert scene.is_old()
    scene.put_again()
    scene.assert_all_comes_back()


def test_a_node_that_dies_ends_its_puts_and_they_can_be_made_again(scene):
    scene.begin()
    scene.node.kill()
    scene.say_go_on()
    scene.hear_ends()
    eventually(lambda: scene.client.stats().nodes == [], "the node is lost")
    scene.assert_nothing_is_wrong()
    scene.cluster.nodes = [scene.cluster.launch_node()]
    scene.node.hear()
    scene.cluster.await_nodes(1)
    scene.put_again()
    scene.assert_all_comes_back()


@pytest.mark.parametrize("ttls", [1.5, 2.5])
def test_a_node_that_stood_still_keeps_what_it_was_not_given_up_with(scene, ttls):
    scene.begin()
    lost_before = scene.client.stats().lost_nodes
    scene.node.signal(signal.SIGSTOP)
    scene.say_go_on()
    pass_time(ttls * TTL_S)
    scene.node.signal(signal.SIGCONT)
    ends = scene.hear_ends()
    scene.cluster.await_nodes(1)
    is_lost = scene.client.stats().lost_nodes > lost_before  # also when time passed too fast
    assert is_lost or ttls < 2
    stored = {step for step, end in ends.items() if end} | {"committed"}
    scene.assert_nothing_is_wrong(stored=() if is_lost else stored)
    scene.put_again()
    scene.assert_all_comes_back()


def test_a_master_that_dies_ends_its_puts_and_they_can_be_made_again(scene):
    scene.begin()
    scene.cluster.master.kill()
    scene.say_go_on()
    ends = scene.hear_ends()
    assert [ends[step] for step in (*UNFINISHED, "replacing")] == [None] * 4
    scene.cluster.start_master(scene.cluster.rpc)
    scene.cluster.await_nodes(1)
    scene.assert_nothing_is_wrong()
    scene.put_again()
    scene.assert_all_comes_back()


def test_a_master_that_stood_still_ends_no_put(scene):
    scene.begin()
    scene.cluster.master.signal(signal.SIGSTOP)
    scene.say_go_on()
    pass_time(3 * TTL_S)
    scene.cluster.master.signal(signal.SIGCONT)
    assert scene.hear_ends() == dict.fromkeys(SIZES, True)
    scene.assert_nothing_is_wrong(stored=SIZES)
    scene.put_again()
    scene.assert_all_comes_back()
