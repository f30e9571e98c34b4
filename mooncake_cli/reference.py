"""docs/CLI.md, written from the commands themselves: `python -m mooncake_cli.reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from mooncake_cli.app import SUMMARIES, build

_HEAD = """# The command line

Written by `python -m mooncake_cli.reference > docs/CLI.md` from the commands themselves.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 it could not be done (one
line says why), 2 wrong usage. Every key of a daemon's configuration is a flag; a flag overrides the
file that `--config` names. Sizes are a number and a unit, such as `512 MiB`.
"""


def reference() -> str:
    """Return the page."""
    group: Any = typer.main.get_command(build(*SUMMARIES))
    sections = [line for name in SUMMARIES for line in _command(name, group.commands[name])]
    return "\n".join([_HEAD, *sections])


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## mooncake {name}\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    yield from _parameters(command)
    for inner_name, inner in getattr(command, "commands", {}).items():
        yield f"### mooncake {name} {inner_name}\n"
        yield f"{inspect.cleandoc(inner.help or '')}\n"
        yield from _parameters(inner)


def _parameters(command: Any) -> Iterator[str]:
    rows = [
        f"| `{_name(parameter)}` | {_cell(parameter)} |"
        for parameter in command.params
        if parameter.name != "help" and not getattr(parameter, "hidden", False)
    ]
    if rows:
        yield from ["| | |", "|---|---|", *rows, ""]


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join(parameter.opts)


def _cell(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    words = (parameter.metavar or "").split("|")
    return text if len(words) == 1 else f"{text} One of: {', '.join(words)}."


if __name__ == "__main__":
    print(reference(), end="")
