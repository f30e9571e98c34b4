"""Reading a configuration file and laying flags over it. Reads one file; otherwise pure.

Errors read `file:key: problem`, and `--flag: problem` where a flag gave the value.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mooncake_core.config.describe import describe
from mooncake_core.errors import ConfigError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

C = TypeVar("C", bound=msgspec.Struct)
Origins = dict[str, str]
"""Dotted key -> "default", "flag" or the file's path."""


def load_config(
    kind: type[C], path: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[C, Origins]:
    """Return a `kind` from the file, with `overrides` laid over it, and where each value is from.

    Args:
        kind: the struct that the file holds.
        path: a TOML file, or None for defaults only.
        overrides: dotted key -> value, from flags; None values are skipped.

    Raises:
        ConfigError: "file:key: problem"; of a flag UsageError: "--flag: problem".
    """
    table = _read(path) if path is not None else {}
    source = str(path) if path is not None else "defaults"
    _refuse_unknown(kind, table, source)
    origins: Origins = {key: str(path) for key, _ in _leaves(table)}
    for key, value in (overrides or {}).items():
        if value is None:
            continue
        _check_override(kind, key, value)
        _set(table, key, value)
        origins[key] = "flag"
    try:
        config = msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        key, problem = _explain(kind, table, str(error))
        is_flag = origins.get(_name(key)) == "flag"
        where = place(key, "flag") if is_flag else f"{source}:{key}" if key else source
        wrong = UsageError if is_flag or path is None else ConfigError
        raise wrong(f"{where}: {problem}") from error
    for key, _ in _leaves(msgspec.to_builtins(config)):
        origins.setdefault(key, "default")
    return config, origins


def checked(config: object, kind: type[C], *, name: str = "") -> C:
    """Return a struct that was made in Python, and so was not checked as one from a file is.

    Args:
        config: what may hold values that a file could not.
        kind: what it has to be.
        name: whose fields the error says they are; empty: the kind's.

    Raises:
        TypeError: it is no such struct.
        ConfigError: "Kind.field: problem".
    """
    if not isinstance(config, kind):
        given = type(config).__name__
        raise TypeError(f"the configuration is a {given}; a {kind.__name__} is needed")
    fields = _struct_table(config)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        key, problem = _explain(kind, fields, str(error))
        where = ".".join(filter(None, (name or kind.__name__, key)))
        raise ConfigError(f"{where}: {problem}") from error


def place(key: str, origin: str) -> str:
    """Return how errors name a key: file:key where a file gave its value, else its flag."""
    if origin in ("flag", "default"):
        return "--" + key.replace(".", "-").replace("_", "-")
    return f"{origin}:{key}"


def render_config(config: msgspec.Struct, origins: Origins) -> list[tuple[str, Any, str]]:
    """Return (dotted key, value, origin) of every value of `config`, in the order of its fields."""
    return [(key, value, origins[key]) for key, value in _leaves(msgspec.to_builtins(config))]


def _read(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return table


def _struct_table(config: msgspec.Struct) -> dict[str, Any]:
    """Return the fields as a file would have them; what no file can hold stays as it is."""
    return {
        name: _struct_table(value) if isinstance(value, msgspec.Struct) else value
        for name, value in msgspec.structs.asdict(config).items()
    }


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    *parents, leaf = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
    table[leaf] = value


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _refuse_unknown(
    kind: type[msgspec.Struct], table: Mapping[str, Any], source: str, prefix: str = ""
) -> None:
    fields = _fields(kind)
    for name, value in table.items():
        key = f"{prefix}{name}"
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(fields)}"
            raise ConfigError(f"{source}:{key}: unknown key; {hint}")
        inner = fields[name]
        if isinstance(value, Mapping) and not _is_table(inner):
            raise ConfigError(f"{source}:{key}: this is a value, not a table")
        if _is_table(inner):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{source}:{key}: Expected a table, got `{type(value).__name__}`")
            _refuse_unknown(inner, value, source, f"{key}.")


def _check_override(kind: type[msgspec.Struct], key: str, value: Any) -> None:
    """Convert one flag's value alone, so that its error names the flag."""
    source = place(key, "flag")
    nested: dict[str, Any] = {}
    _set(nested, key, value)
    _refuse_unknown(kind, nested, source)
    table: Any = kind
    *parents, leaf = key.split(".")
    for parent in parents:
        table = _fields(table)[parent]
    try:
        msgspec.convert(value, _fields(table)[leaf])
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {_worded(kind, key, value, str(error))}") from error


_AT = re.compile(r" - at `\$\.?([^`]*)`$")


def _split(message: str) -> tuple[str, str]:
    """Turn msgspec's "problem - at `$.key`" into (dotted key, problem)."""
    match = _AT.search(message)
    key, problem = match.group(1) if match else "", _AT.sub("", message)
    # A __post_init__ names its own key, relative to the struct it is in.
    inner = re.match(r"([a-z_]+): (.*)", problem, re.DOTALL)
    if inner is None:
        return key, problem
    return f"{key}.{inner.group(1)}" if key else inner.group(1), inner.group(2)


def _explain(kind: type[msgspec.Struct], table: Mapping[str, Any], message: str) -> tuple[str, str]:
    """Return the key that is wrong, and the problem in words that say what would be right."""
    key, problem = _split(message)
    name, _, index = key.partition("[")
    value = dict(_leaves(table)).get(name)
    if index.removesuffix("]").isdigit() and isinstance(value, Sequence):
        value = value[int(index.removesuffix("]"))]
    return key, _worded(kind, key, value, problem)


def _name(key: str) -> str:
    """Return a key without the index of the entry of its list that is meant."""
    return key.partition("[")[0]


def _worded(kind: type[msgspec.Struct], key: str, value: Any, problem: str) -> str:
    known = next((known for known in describe(kind) if known.name == _name(key)), None)
    if known is None or not problem.startswith(("Expected", "Invalid enum value")):
        return problem
    if known.choices:
        return f"{value!r} is none of {', '.join(filter(None, known.choices))}"
    if known.expected and "length" not in problem:
        return f"{value!r} is not {known.expected}"
    return f"{problem}; got {value!r}" if ", got" not in problem else f"{problem} {value!r}"
