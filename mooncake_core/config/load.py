"""Reading a configuration file and laying flags over it. Reads one file; otherwise pure.

Errors read `file:key: problem`, and `--flag: problem` where a flag gave the value.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mooncake_core.config.describe import describe
from mooncake_core.errors import ConfigError

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
        ConfigError: "file:key: problem" or "--flag: problem".
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
        key, problem = _split(str(error))
        value = dict(_leaves(table)).get(key)
        source = _flag(key) if origins.get(key) == "flag" else source
        raise ConfigError(_explain(kind, source, (key, value), problem)) from error
    for key, _ in _leaves(msgspec.to_builtins(config)):
        origins.setdefault(key, "default")
    return config, origins


def checked(config: C, table: str) -> C:
    """Return a struct that was made in Python, and so was not checked, or raise ConfigError.

    Args:
        config: what may hold values that a file could not.
        table: its name, for the error.
    """
    try:
        return msgspec.convert(msgspec.to_builtins(config), type(config))
    except (msgspec.ValidationError, TypeError) as error:
        key, problem = _split(str(error))
        raise ConfigError(f"{table}.{key}: {problem}" if key else f"{table}: {problem}") from error


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
    source = _flag(key)
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
        raise ConfigError(_explain(kind, source, (key, value), str(error))) from error


def _flag(key: str) -> str:
    return "--" + key.replace(".", "-").replace("_", "-")


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


def _explain(
    kind: type[msgspec.Struct], source: str, setting: tuple[str, Any], problem: str
) -> str:
    """Return "source:key: problem", of a flag's value "flag: problem".

    The problem is put in words that say what would be right.
    """
    key, value = setting
    if not key:
        return f"{source}: {problem}"
    known = next((known for known in describe(kind) if known.name == key), None)
    if known is not None and ", got" not in problem:
        if known.choices and problem.startswith("Invalid enum value"):
            problem = f"{value!r} is none of {', '.join(filter(None, known.choices))}"
        elif "regex" in problem:
            problem = f"{value!r} is not {known.expected}"
        elif problem.startswith("Expected"):
            problem = f"{problem}; got {value!r}"
    where = source if source == _flag(key) else f"{source}:{key}"
    return f"{where}: {problem}"
