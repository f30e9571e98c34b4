"""What a master logs about nodes that come, are drained and go, from two looks at them. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mooncake_core.store.stats import NodeStats
from mooncake_core.store.tasks import TaskStatus
from mooncake_core.units import format_size

Event = tuple[int, str]
"""The level to log it at, and what has happened."""


class Look(Struct, frozen=True):
    """One look at a store."""

    nodes: dict[str, NodeStats] = {}
    """By the name that people know them by."""
    drains: dict[int, TaskStatus] = {}
    """Those that run or have run, by their task."""

    def last_drain(self, name: str) -> TaskStatus | None:
        """Return the one that was begun last of a node."""
        of_node = (task for task, drain in self.drains.items() if drain.source == name)
        return self.drains.get(max(of_node, default=0))


def look_at(nodes: Iterable[NodeStats], tasks: Iterable[TaskStatus]) -> Look:
    """Return a look at nodes, and at tasks that were asked for after them."""
    return Look(
        {node.name or node.endpoint: node for node in nodes},
        {task.task: task for task in tasks if task.kind == "drain"},
    )


def changes(before: Look, now: Look) -> Iterator[Event]:
    """Return what has happened between two looks."""
    for name, node in now.nodes.items():
        event = _joined(name, before, node) or _changed(name, before.nodes[name], now)
        if event is not None:
            yield event
    for task, drain in now.drains.items():
        yield from _drained(before.drains.get(task), drain, is_there=drain.source in now.nodes)
    for name, old in before.nodes.items():
        if name not in now.nodes:
            yield _gone(name, old)


def _gone(name: str, old: NodeStats) -> Event:
    what = f"node {name} at {old.endpoint}"
    if old.state == "suspected":
        return logging.WARNING, f"{what} is lost, with the {format_size(old.used_bytes)} it held"
    return logging.INFO, f"{what} has left"


def _joined(name: str, before: Look, node: NodeStats) -> Event | None:
    old = before.nodes.get(name)
    if old is not None and old.id == node.id:
        return None
    how = "has started anew" if old is not None else "has joined"
    size = format_size(node.capacity_bytes)
    domain = "" if node.domain == node.host_id else f", domain {node.domain}"
    return logging.INFO, f"node {name} at {node.endpoint} {how}: {size}{domain}"


def _changed(name: str, old: NodeStats, now: Look) -> Event | None:
    state = now.nodes[name].state
    if state == old.state:
        return None
    if state == "suspected":
        return logging.WARNING, f"node {name} is silent: it is suspected, and not used"
    if old.state == "suspected":
        return logging.INFO, f"node {name} is heard again"
    drain = now.last_drain(name)
    if state == "online" and (drain is None or drain.state == "done"):
        return logging.INFO, f"node {name} takes objects again"
    return None  # the drain says so


def _drained(old: TaskStatus | None, drain: TaskStatus, *, is_there: bool) -> Iterator[Event]:
    node = f"node {drain.source}"
    again = ", and it takes objects again" if is_there else ""
    if old is None:
        yield logging.INFO, f"{node} is being drained: it takes nothing new"
    if old is not None and old.state == drain.state:
        return
    match drain.state:
        case "done":
            yield logging.INFO, f"{node} is drained: it is empty"
        case "failed":
            yield logging.WARNING, f"{node} could not be drained: {drain.problem}{again}"
        case "cancelled":
            yield logging.INFO, f"the drain of {node} was cancelled{again}"
