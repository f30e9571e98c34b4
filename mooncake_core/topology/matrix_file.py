"""A matrix that the user wrote, in the form that matrix.py describes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mooncake_core.errors import ConfigError
from mooncake_core.topology.filters import device_names, host_addresses, nearest
from mooncake_core.topology.host import Host
from mooncake_core.topology.matrix import Matrix, Names

_LOCATION = re.compile(r"(cpu|cuda):(0|[1-9][0-9]{0,5})", re.ASCII)
_EXAMPLE = '{"cpu:0": [["mlx5_0"], ["mlx5_1"]]}'


def load_matrix(path: Path, host: Host) -> Matrix:
    """Return the matrix in a file; its NICs must be devices or addresses of this host.

    Whether they are usable is not asked: who names them knows.

    Raises:
        ConfigError: "file:key: problem".
    """
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: not a table of locations, such as {_EXAMPLE}")
    known = [*device_names(host), *host_addresses(host)]
    return {key: _row(f"{path}:{key}", key, row, known) for key, row in found.items()}


def _row(source: str, key: str, row: Any, known: list[str]) -> tuple[Names, Names]:
    if not _LOCATION.fullmatch(key):
        raise ConfigError(f"{source}: no location; write cpu:N or cuda:N")
    if not isinstance(row, list) or len(row) != 2 or not all(_is_names(each) for each in row):
        raise ConfigError(f"{source}: not [[preferred NICs], [secondary NICs]], as in {_EXAMPLE}")
    preferred, secondary = row
    for problem in _problems([*preferred, *secondary], known):
        raise ConfigError(f"{source}: {problem}")
    return tuple(preferred), tuple(secondary)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _problems(names: list[str], known: list[str]) -> Iterator[str]:
    if not names:
        yield "names no NIC"
    for index, name in enumerate(names):
        if name not in known:
            yield f"{name!r} is no NIC of this host; {nearest(name, known)}"
        if name in names[:index]:
            yield f"{name!r} is named twice"
