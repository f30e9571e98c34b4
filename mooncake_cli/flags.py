"""Command-line flags made from configuration structs, so that each key has one.

A flag that is not given is None and leaves the file's or the default value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer

from mooncake_core.config import KINDS, Key, Origins, Table, describe, load_config, place
from mooncake_core.errors import ConfigError

C = TypeVar("C")

ALIASES = {"model.path": "--model", "model.dtype": "--dtype", "transfer.same_host": "--same-host"}
"""Short names of flags whose own is long."""

ConfigFile: Any = typer.Option(
    None, "--config", metavar="FILE", help="A TOML file; flags override."
)
Json: Any = typer.Option(False, "--json", help="Print JSON.")


def with_flags(kind: str, run: Callable[..., None]) -> Callable[..., None]:
    """Return a command with one flag for each key of a kind, beside the parameters of `run`.

    Args:
        kind: of configuration.
        run: called with the loaded config and its own further parameters by name.
    """
    keys = describe(KINDS[kind])

    def command(**values: Any) -> None:
        flags = _taken(keys, values)
        config, origins = load(kind, values.pop("config"), flags)
        with _placed(origins):
            run(config, **values)

    return _shown(command, run, [_path(), *map(_flag, keys)])


def with_flags_of(
    table: type[Table], run: Callable[..., None], *, without: Collection[str] = ()
) -> Callable[..., None]:
    """Return a command like `with_flags` does, for a struct that is never read from a file.

    Args:
        table: the struct.
        run: see with_flags.
        without: keys that have no flag.
    """
    keys = tuple(key for key in describe(table) if key.name not in without)

    def command(**values: Any) -> None:
        flags = _taken(keys, values)
        config, origins = load_config(table, None, flags)
        with _placed(origins):
            run(config, **values)

    return _shown(command, run, [*map(_flag, keys)])


def load(
    kind: str, path: Path | None, flags: Mapping[str, Any] | None = None
) -> tuple[Any, Origins]:
    """Return the config of a kind from a file and flags, and where each value is from."""
    return load_config(KINDS[kind], path, flags)


@contextmanager
def _placed(origins: Origins) -> Iterator[None]:
    """Have what turns out to be wrong with a key, "key: problem", told with its file or flag."""
    try:
        yield
    except ConfigError as error:
        key, _, problem = str(error).partition(": ")
        if key not in origins:
            raise
        raise type(error)(f"{place(key, origins[key])}: {problem}") from error


def _taken(keys: Iterable[Key], values: dict[str, Any]) -> dict[str, Any]:
    """Take the values of the keys' flags out of `values`."""
    taken = {key.name: _value(key, values) for key in keys}
    for key in keys:
        del values[_parameter(key)]
    return taken


def _shown(
    command: Callable[..., None], run: Callable[..., None], flags: list[inspect.Parameter]
) -> Callable[..., None]:
    """Return `command`, which shows these flags and the further parameters of `run`."""
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(run, eval_str=True).parameters.values())[1:]
    ]
    parameters = [*flags, *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = run.__doc__
    return command


def _parameter(key: Key) -> str:
    return key.name.replace(".", "__")


def _value(key: Key, values: Mapping[str, Any]) -> Any:
    """Return a flag's value; a list is given as one text."""
    value = values[_parameter(key)]
    if key.type is not tuple or value is None:
        return value
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def _path() -> inspect.Parameter:
    return inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=ConfigFile, annotation=Path | None
    )


def _flag(key: Key) -> inspect.Parameter:
    names = [key.flag, *([ALIASES[key.name]] if key.name in ALIASES else [])]
    is_list = key.type is tuple
    default = f"[default: {key.default!s}]" if key.default not in ("", ()) else ""
    option = typer.Option(
        None,
        *names,
        metavar="|".join(filter(None, key.choices))
        or ("A,B,..." if is_list else key.type.__name__.upper()),
        help=f"{key.doc} {default}".strip(),
    )
    kind = str if is_list else key.type
    return inspect.Parameter(
        _parameter(key),
        inspect.Parameter.KEYWORD_ONLY,
        default=option,
        annotation=kind | None,
    )
