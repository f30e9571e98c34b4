"""Which prefill instance holds which block in its own pages. Pure.

A holder set is an integer with one bit an instance, so that the match of all instances at once is
a running AND.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from mooncake_core.messages import KvEvents


class PrefixIndex:
    """Block name -> instances. Not thread-safe."""

    def __init__(self) -> None:
        self._holders: dict[bytes, int] = {}
        self._bit: dict[str, int] = {}
        self._blocks: dict[str, set[bytes]] = {}
        self._next_seq: dict[str, int] = {}

    def add_instance(self, instance_id: str) -> None:
        """Begin, or begin anew, with an instance that holds nothing and starts at seq 0."""
        self.remove_instance(instance_id)
        taken = set(self._bit.values())
        self._bit[instance_id] = next(bit for bit in count() if bit not in taken)
        self._blocks[instance_id] = set()
        self._next_seq[instance_id] = 0

    def remove_instance(self, instance_id: str) -> None:
        """Forget an instance and all that it held; unknown ones are no error."""
        if instance_id in self._bit:
            self._clear(instance_id)
            del self._bit[instance_id], self._blocks[instance_id], self._next_seq[instance_id]

    def apply(self, instance_id: str, events: KvEvents) -> bool:
        """Take in `events`; False: some were missed, the instance must register again.

        A repeated message, as after a lost answer, is accepted and ignored.

        Raises:
            ValueError: a name is not hexadecimal.
        """
        expected = self._next_seq[instance_id]
        if events.seq not in (0, expected, expected - 1):
            self._clear(instance_id)
            return False
        if events.seq == expected - 1 and events.seq > 0:
            return True
        stored = [bytes.fromhex(name) for name in events.stored]
        removed = [bytes.fromhex(name) for name in events.removed]
        if events.seq == 0:
            self._clear(instance_id)
        for name in removed:
            self._drop(instance_id, name)
        for name in stored:
            self._blocks[instance_id].add(name)
            self._holders[name] = self._holders.get(name, 0) | 1 << self._bit[instance_id]
        self._next_seq[instance_id] = events.seq + 1
        return True

    def match(self, names: Sequence[bytes]) -> dict[str, int]:
        """Return for every instance how many leading blocks of `names` it holds."""
        lengths = dict.fromkeys(self._bit, 0)
        holding = (1 << max(self._bit.values(), default=-1) + 1) - 1
        for depth, name in enumerate(names, start=1):
            holding &= self._holders.get(name, 0)
            if not holding:
                break
            for instance_id, bit in self._bit.items():
                if holding >> bit & 1:
                    lengths[instance_id] = depth
        return lengths

    def block_count(self, instance_id: str) -> int:
        """Return how many blocks the instance holds."""
        return len(self._blocks[instance_id])

    def _clear(self, instance_id: str) -> None:
        for name in list(self._blocks[instance_id]):
            self._drop(instance_id, name)

    def _drop(self, instance_id: str, name: bytes) -> None:
        self._blocks[instance_id].discard(name)
        left = self._holders.get(name, 0) & ~(1 << self._bit[instance_id])
        if left:
            self._holders[name] = left
        else:
            self._holders.pop(name, None)
