"""`mooncake doctor`."""

from __future__ import annotations

import msgspec
import typer

from mooncake_cli.doctor import Part, examine
from mooncake_cli.flags import Json
from mooncake_cli.render import print_table


def command(as_json: bool = Json) -> None:
    """Say which optional parts are there, and how to get others.

    The exit code is 1 if a required part is missing, else 0.
    """
    parts = examine()
    if as_json:
        print(msgspec.json.encode(parts).decode())
    else:
        print_table(["", "part", "what there is"], [_row(part) for part in parts])
    if any(part.is_required and not part.is_found for part in parts):
        raise typer.Exit(1)


def _row(part: Part) -> tuple[str, str, str]:
    mark = "ok" if part.is_found else "MISSING" if part.is_required else "-"
    lines = [part.found, f"for: {part.use}", *([f"get: {part.bring}"] if part.bring else [])]
    return mark, part.name, "\n".join(lines)
