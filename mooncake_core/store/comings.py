"""What a master logs about nodes that come and go, from two looks at its stats. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from mooncake_core.store.stats import NodeState, NodeStats
from mooncake_core.units import format_size

Nodes = Mapping[str, NodeStats]
"""By name."""
Event = tuple[int, str]
"""The level to log it at, and what has happened."""

_BECAME: Mapping[NodeState, str] = {
    "online": "takes objects again",
    "suspected": "is silent: it is suspected, and not used",
    "draining": "is drained: it takes nothing new",
}


def by_name(nodes: Iterable[NodeStats]) -> Nodes:
    """Return them by the name that people know them by."""
    return {node.name or node.endpoint: node for node in nodes}


def changes(before: Nodes, now: Nodes) -> Iterator[Event]:
    """Return what has happened between two looks at the nodes, one event a node."""
    for name, old in before.items():
        if name not in now:
            yield _gone(name, old)
    for name, node in now.items():
        event = _joined(name, before, node) or _changed(name, before[name], node)
        if event is not None:
            yield event


def _gone(name: str, old: NodeStats) -> Event:
    what = f"node {name} at {old.endpoint}"
    if old.state == "suspected":
        return logging.WARNING, f"{what} is lost, with the {format_size(old.used_bytes)} it held"
    return logging.INFO, f"{what} has left, with the {format_size(old.used_bytes)} it held"


def _joined(name: str, before: Nodes, node: NodeStats) -> Event | None:
    if name in before and before[name].id == node.id:
        return None
    how = "has started anew" if name in before else "has joined"
    size = format_size(node.capacity_bytes)
    domain = "" if node.domain == node.host_id else f", domain {node.domain}"
    return logging.INFO, f"node {name} at {node.endpoint} {how}: {size}{domain}"


def _changed(name: str, old: NodeStats, node: NodeStats) -> Event | None:
    if old.state != node.state:
        level = logging.WARNING if node.state == "suspected" else logging.INFO
        is_heard = old.state == "suspected" and node.state == "online"
        return level, f"node {name} {'is heard again' if is_heard else _BECAME[node.state]}"
    if node.state == "draining" and old.used_bytes and not node.used_bytes:
        return logging.INFO, f"node {name} is empty"
    return None
