"""The `mooncake` command: parses, and imports no command's module but the one that is run.

A MooncakeError ends a command with one line on stderr and exit code 1; wrong usage, be it
found by the parser or be it a UsageError, with 2.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from mooncake_core import __version__
from mooncake_core.errors import MooncakeError, UsageError

SUMMARIES = {
    "up": "Run a whole cluster on this machine.",
    "master": "Run the master: where every stored object lives.",
    "store": "Run a store node: lend memory to the pool.",
    "prefill": "Run a prefill instance: read prompts.",
    "decode": "Run a decode instance: write answers.",
    "conductor": "Run the conductor: OpenAI-compatible gateway and scheduler.",
    "status": "Show a running cluster: members, store, hit rate.",
    "kvsize": "Say how large a model's KV cache is.",
    "te-bench": "Measure how fast the transfer engine moves bytes here.",
    "topo": "Show this host's NICs, RDMA devices, NUMA nodes and GPUs.",
    "doctor": "Say which optional parts are there, and how to get others.",
    "config": "Check configuration files, show where values are from.",
}
"""Command -> its line in `mooncake --help`; the module commands/<name>.py has the rest."""


def build(*commands: str) -> typer.Typer:
    """Return the application with these commands loaded; the others are only listed."""
    app = typer.Typer(
        name="mooncake",
        help="Mooncake serves large language models around one object: the KV cache.",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, summary in SUMMARIES.items():
        if name not in commands:
            app.command(name, help=summary)(_not_loaded)
            continue
        command = importlib.import_module(f"mooncake_cli.commands.{name.replace('-', '_')}").command
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=summary)
        else:
            app.command(name)(command)
    return app


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process at once while modules are loaded.

    There is nothing to clean up yet, and an exception in the middle of loading a native module
    would abort the process.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    try:
        with _ended_by_interrupts():
            app = build(wanted)
        app(arguments, prog_name="mooncake")
    except MooncakeError as error:
        print(f"mooncake: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    return 0


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mooncake {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="Show the version."
    ),
) -> None:
    """Take the options that come before the command."""


def _not_loaded() -> None:
    raise AssertionError("only the command named on the line is run, and main loaded that one")
