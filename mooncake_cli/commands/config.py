"""`mooncake config`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from mooncake_cli.flags import ConfigFile, Json, load
from mooncake_cli.render import print_table
from mooncake_core.config import KINDS, kind_named, kind_of_file, render_config

command = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Kind: Any = typer.Option(
    None, "--kind", help=f"One of {', '.join(KINDS)}; else by the file's name."
)


@command.command()
def check(
    files: list[Path] = typer.Argument(..., metavar="FILE...", help="TOML files."),
    kind: str | None = Kind,
    as_json: bool = Json,
) -> None:
    """Check configuration files.

    A file that is wrong is told with its key on stderr, and the exit code is 1.
    """
    for file in files:
        name = _kind(kind, file)
        load(name, file)
        print(
            json.dumps({"file": str(file), "kind": name}) if as_json else f"{file}: good ({name})"
        )


@command.command()
def show(
    kind: str | None = typer.Argument(
        None, metavar="[KIND]", help=f"One of {', '.join(KINDS)}; all where no file is given."
    ),
    config: Path | None = ConfigFile,
    as_json: bool = Json,
) -> None:
    """Show every value and where it comes from: a file or the defaults."""
    names = list(KINDS) if kind is None and config is None else [_kind(kind, config)]
    answer: dict[str, Any] = {}
    for name in names:
        rows = render_config(*load(name, config))
        answer[name] = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        if not as_json:
            cells = [(key, json.dumps(value), origin) for key, value, origin in rows]
            print_table(["key", "value", "from"], cells, title=f"mooncake {name}")
    if as_json:
        print(json.dumps(answer))


def _kind(kind: str | None, file: Path | None) -> str:
    if kind is None:
        assert file is not None, "without a file every kind is shown"
        return kind_of_file(file)
    kind_named(kind)
    return kind
