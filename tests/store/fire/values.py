"""Values that say whose they are: every byte follows from the key and the version. Pure."""

from __future__ import annotations

import random

SIZES = (8, 1000, 4096, 65_536, 65_537, 300_000)
PART_BYTES = 32 << 10
_VERSION_BYTES = 8


def value_of(key, version):
    """Return the bytes of a version of a key; they begin with the version."""
    rng = random.Random(f"{key} {version}")
    size = rng.choice(SIZES)
    return version.to_bytes(_VERSION_BYTES, "little") + rng.randbytes(size - _VERSION_BYTES)


def version_in(key, value):
    """Return the version of the key that these bytes are; None: they are no version of it."""
    version = int.from_bytes(value[:_VERSION_BYTES], "little")
    is_plausible = version < 1 << 32 and value == value_of(key, version)
    return version if is_plausible else None
