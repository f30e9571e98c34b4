"""What must hold after every step: the master says of itself what the twin says of it."""

from __future__ import annotations

from tests.store import wire
from tests.store.sim.model import Object


def listing(core):
    """Return everything that is committed, by key, and the names of nodes."""
    there, cursor = {}, 0
    while True:
        page = core.call(18, wire.List(cursor, 1024), wire.Objects, 0.0)
        for each in page.objects:
            assert each.key not in there, f"{each.key!r} is listed twice"
            there[each.key] = (each, sorted(page.nodes[at] for at in each.copies))
        cursor = page.cursor
        if cursor == 0:
            return there


def gone(model, there):
    """Return what the twin has and the master has not any more."""
    return {
        each
        for each in model.committed
        if each.key not in there or there[each.key][0].generation != each.generation
    }


def check_objects(model, there):
    """The same objects are there, with the same words about them."""
    model.sync_copies(there, gone(model, there))
    for key, (info, nodes) in there.items():
        each = model.keys.get(key)
        assert each and each.generation == info.generation, f"{info} is nobody's"
        told = (info.is_there, info.size_bytes, info.part_bytes, info.pin, info.depth, info.group)
        group = each.group.name if each.group else b""
        known = (model.is_readable(each), each.size, each.part, each.pin, each.depth, group)
        assert told == known, (each, told, known)
        copies = [copy.places[0][0] for copy in each.copies if not copy.is_retired]
        assert nodes == sorted(model.nodes[node].name for node in copies), (each, nodes, copies)


def check_memory(model, stats):
    """Used is the sum of what lives; what waits for a fence is known to."""
    names = {node.node: node for node in stats.nodes}
    assert set(names) == set(model.nodes)
    for number, node in model.nodes.items():
        told = names[number]
        assert (told.state, told.capacity) == (node.state, node.memory.capacity), told
        assert told.quarantined == node.quarantined, (told, node.quarantine)
        if model.has_unknown_memory():
            assert told.used >= node.memory.used, (told, node.memory.extents)
        else:
            assert told.used == node.memory.used, (told, node.memory.extents)
    if not model.has_unknown_memory():
        evictable = sum(model.evictable_on(node) for node in model.nodes.values())
        assert stats.space.evictable == evictable


def check_copies(model, stats, tasks):
    """Orders, and how tasks stand."""
    model.background.is_busy = stats.copy_orders > 0
    assert stats.copy_orders >= len(model.background.orders)
    if not stats.copy_orders:
        assert not any(each.is_copied for each in model.committed)
    model.sync_tasks(tasks)
    running = [task for task in model.background.tasks.values() if task.state == wire.RUNNING]
    assert stats.tasks == len(running)


def check_counts(model, stats):
    """As many sessions, leases and puts."""
    assert stats.clients == len(model.sessions)
    assert stats.leases == len(model.leases)
    assert stats.writing == len(model.writing)
    assert stats.objects == len(model.committed)
    assert stats.groups == len(model.groups)
    for pin, told in ((wire.SOFT_PIN, stats.soft_pinned), (wire.HARD_PIN, stats.hard_pinned)):
        pinned = [each for each in model.everything() if each.pin == pin]
        is_known = not model.has_unknown_memory()
        assert not is_known or told == sum(model.bytes_of(each) for each in pinned), pinned
    counters, counts = stats.counters, model.counts
    assert counters.hits == counts["hits"]
    assert counters.misses == counts["misses"]
    assert counters.puts == counts["commits"]


def check_twin(model):
    """The twin itself is sane: what is committed is granted, and nothing else."""
    for node in model.nodes.values():
        for _, owner in node.memory.extents.values():
            if isinstance(owner, Object):
                assert owner.copies, owner
