"""Which struct a configuration file holds: by its kind's name, or by the name of the file. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from mooncake_core.config.tables import (
    ConductorConfig,
    DecodeConfig,
    MasterConfig,
    PrefillConfig,
    StoreConfig,
    Table,
    UpConfig,
)
from mooncake_core.errors import UsageError

KINDS: Mapping[str, type[Table]] = MappingProxyType(
    {
        "master": MasterConfig,
        "store": StoreConfig,
        "conductor": ConductorConfig,
        "prefill": PrefillConfig,
        "decode": DecodeConfig,
        "up": UpConfig,
    }
)


def kind_named(name: str) -> type[Table]:
    """Return the struct of a kind, or raise UsageError."""
    kind = KINDS.get(name)
    if kind is None:
        near = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"{name!r} is no kind of configuration; {hint}known: {', '.join(KINDS)}")
    return kind


def kind_of_file(path: Path) -> str:
    """Return the kind that a file name starts with: store.toml, store-2.toml, store_fast.toml."""
    stem = re.split(r"[-_.0-9]", path.name, maxsplit=1)[0]
    if stem not in KINDS:
        raise UsageError(
            f"{path}: the file name starts with no kind ({', '.join(KINDS)}); say it with --kind"
        )
    return stem
