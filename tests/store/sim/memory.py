"""Who may touch which bytes of which node, by plain intervals."""

from __future__ import annotations

HEADER_BYTES = UNIT_BYTES = 64
CHUNK_BYTES = 256 * 1024


def extent_bytes(size):
    """Return what a stripe of a payload takes."""
    return -(-(HEADER_BYTES + size) // UNIT_BYTES) * UNIT_BYTES


def stripe_bytes(size, part, limit):
    """Return into stripes of how many bytes an object is cut; 0: it is one."""
    unit = part if 0 < part < size else CHUNK_BYTES
    stripe = max(limit // unit, 1) * unit
    return stripe if size > stripe else 0


def stripes(size, part, limit):
    """Return how many bytes each stripe of an object has."""
    stripe = stripe_bytes(size, part, limit)
    if not stripe:
        return [size]
    return [min(stripe, size - at) for at in range(0, size, stripe)]


def chunk_count(size, part):
    """Return how many checksums an object has."""
    parts = [part] * (size // part) + [size % part] if 0 < part < size else [size]
    return sum(-(-each // CHUNK_BYTES) for each in parts)


class Memory:
    """The extents of one node: what is granted, to be read, or may still be written."""

    def __init__(self, capacity):
        self.capacity = capacity // UNIT_BYTES * UNIT_BYTES
        self.extents = {}  # offset -> (bytes, owner)

    def claim(self, offset, size, owner):
        """Grant a range; nobody else may have a byte of it."""
        assert offset % UNIT_BYTES == 0, (offset, owner)
        assert offset + size <= self.capacity, (offset, size, self.capacity, owner)
        for start, (other_bytes, other) in self.extents.items():
            is_apart = offset + size <= start or start + other_bytes <= offset
            assert is_apart, f"{owner} was granted what {other} has, at {max(offset, start)}"
        self.extents[offset] = (size, owner)

    def free(self, offset):
        """Take back what was granted."""
        del self.extents[offset]

    @property
    def used(self):
        """Bytes that are granted."""
        return sum(size for size, _ in self.extents.values())

    def gaps(self, may_go=lambda owner: False):
        """Return the lengths of all runs that are free, or would be if all that may go went."""
        gaps, end = [], 0
        for offset in sorted(self.extents):
            size, owner = self.extents[offset]
            if may_go(owner):
                continue
            gaps.append(offset - end)
            end = offset + size
        return [*gaps, self.capacity - end]
