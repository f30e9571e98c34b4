"""Drawing for people: the only module that imports rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """Print a table to stdout; values are text, never markup."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    Console(highlight=False).print(table)


def clear_screen() -> None:
    """Start again at the top of the terminal; does nothing where stdout is none."""
    Console().clear()
