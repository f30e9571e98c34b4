"""What a store that never errs would answer. Pure; its owner locks.

A key's versions are put one after another. A read may give any version from the one that was
committed when it began to the newest that was begun when it ended, and nothing else. It must hit
when a version was committed before it began, nobody began to remove it, and one of its nodes was up
all the while; else it may.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Life:
    """A node, by the id of its segment."""

    is_up: bool = True
    downs: int = 0
    """How often it was stopped, killed or lost."""


@dataclass
class Entry:
    """A key."""

    issued: int = 0
    """Newest version of which a put was begun."""
    floor: int = 1
    """Oldest version that a read that begins now may give."""
    committed: int | None = None
    nodes: tuple[int, ...] = ()
    is_busy: bool = False
    """A put or a remove of it is under way."""


@dataclass(frozen=True)
class Ticket:
    """A read as it was begun."""

    key: str
    floor: int
    committed: int | None
    lives: tuple[tuple[int, int], ...]
    """Nodes that were up and hold it, and how often each had been down."""


@dataclass
class Oracle:
    """All keys and nodes."""

    entries: dict[str, Entry] = field(default_factory=dict)
    lives: dict[int, Life] = field(default_factory=dict)

    def begin_put(self, key):
        """Return the version to put."""
        entry = self.entries.setdefault(key, Entry())
        entry.issued += 1
        entry.is_busy = True
        return entry.issued

    def end_put(self, key, *, is_stored, nodes=()):
        """Take note of the master's word; not stored means that an older version is there."""
        entry = self.entries[key]
        entry.is_busy = False
        if is_stored:
            entry.committed = entry.floor = entry.issued
            entry.nodes = tuple(nodes)

    def begin_remove(self, key):
        """From now on a read may miss."""
        self.entries[key].is_busy = True

    def end_remove(self, key):
        """From now on a read of what was there is wrong."""
        entry = self.entries[key]
        entry.is_busy, entry.committed, entry.nodes = False, None, ()
        entry.floor = entry.issued + 1

    def may_be_gone(self, ticket):
        """It missed, and may have been evicted: it need not be there any more, but may."""
        entry = self.entries.get(ticket.key)
        if entry is not None and not entry.is_busy and entry.committed == ticket.committed:
            entry.committed, entry.nodes = None, ()

    def doubt(self, key):
        """Nobody knows how its put or remove ended: reads may miss or give what was issued."""
        entry = self.entries[key]
        entry.committed, entry.nodes, entry.is_busy = None, (), True

    def node_up(self, node):
        """It is there, perhaps again."""
        self.lives.setdefault(node, Life()).is_up = True

    def node_down(self, node):
        """It was stopped, killed or lost."""
        life = self.lives.setdefault(node, Life())
        life.downs += life.is_up
        life.is_up = False

    def is_served(self, key):
        """Whether a version is committed and a node that holds it is up."""
        entry = self.entries.get(key)
        return entry is not None and entry.committed is not None and bool(self._lives_of(entry))

    def begin_read(self, key):
        """Return what `end_read` needs."""
        entry = self.entries.get(key, Entry())
        committed = None if entry.is_busy else entry.committed
        return Ticket(key, entry.floor, committed, self._lives_of(entry))

    def must_hit(self, ticket):
        """Whether what held when the read began still does."""
        entry = self.entries.get(ticket.key, Entry())
        is_same = not entry.is_busy and entry.committed == ticket.committed is not None
        return is_same and any(
            self.lives[node].is_up and self.lives[node].downs == downs
            for node, downs in ticket.lives
        )

    def is_right(self, ticket, version):
        """Whether the read may give this version."""
        entry = self.entries.get(ticket.key, Entry())
        return ticket.floor <= version <= entry.issued

    def _lives_of(self, entry):
        return tuple(
            (node, self.lives[node].downs)
            for node in entry.nodes
            if node in self.lives and self.lives[node].is_up
        )
