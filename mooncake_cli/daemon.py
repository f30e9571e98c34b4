"""What the five daemons share: their configuration, their life and how they say that they serve.

A daemon says once that it serves: as a JSON object {name: "host:port"} on `--ready-fd` where a
supervisor gave one, else for people on stderr. SIGTERM or SIGINT stops it cleanly, a second one at
once. With `--parent` it dies with that process, whichever way that one dies.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import typer

from mooncake_cli.flags import with_flags
from mooncake_core.config import WorkerConfig
from mooncake_core.errors import MooncakeError
from mooncake_core.worker.threads import prepare_threads

SERVE = {
    "master": "mooncake_core.store.master_service:serve_master",
    "store": "mooncake_core.store.node_service:serve_store",
    "prefill": "mooncake_core.worker.prefill_service:serve_prefill",
    "decode": "mooncake_core.worker.decode_service:serve_decode",
    "conductor": "mooncake_core.conductor.service:serve_conductor",
}
"""Role -> module:coroutine. Imported only when the role is run."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PR_SET_PDEATHSIG = 1


def daemon_command(role: str, doc: str) -> Callable[..., None]:
    """Return the command that runs a role."""

    def run(
        config: Any,
        *,
        context: typer.Context,
        ready_fd: int = typer.Option(-1, hidden=True, help="Where to say that it serves."),
        parent: int = typer.Option(0, hidden=True, help="Die with this process."),
        log_level: str = typer.Option("INFO", help=f"One of {', '.join(LEVELS)}."),
    ) -> None:
        if _names_another(context):
            return
        if parent:
            die_with(parent)
        _log_to_stderr(log_level)
        _allow_many_files()
        if isinstance(config, WorkerConfig):
            prepare_threads(config.threads)
        asyncio.run(_serve(role, config, ready_fd))

    run.__doc__ = doc
    return with_flags(role, run)


def daemon_group(role: str, doc: str) -> typer.Typer:
    """Return the command that runs a role, which may be given subcommands besides."""
    group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    group.callback()(daemon_command(role, doc))
    return group


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` dies; exit now if it has died already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise MooncakeError(f"process {parent}, which started this one, is gone")


def _names_another(context: typer.Context) -> bool:
    """Return whether a subcommand is to be run; refuse flags that it would not see."""
    subcommand = context.invoked_subcommand
    given = [
        f"--{name.replace('__', '-').replace('_', '-')}"
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if subcommand is not None and given:
        print(f"{', '.join(given)}: not before {subcommand}, but after it", file=sys.stderr)
        raise typer.Exit(2)
    return subcommand is not None


def _log_to_stderr(level: str) -> None:
    if level not in LEVELS:
        raise typer.BadParameter(f"{level!r} is none of {', '.join(LEVELS)}")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one.

    A connection is a file. Systems give 1024 by default, which some hundred streams use up; then
    nothing is accepted any more. Nothing here uses select(2), for which the low limit is there.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(role: str, config: Any, ready_fd: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_once)
    serve = _imported(role)
    await serve(config, ready=lambda bound: _say_ready(role, bound, ready_fd), stop=stop)


def _imported(role: str) -> Callable[..., Coroutine[Any, Any, None]]:
    module, name = SERVE[role].split(":")
    try:
        serve: Callable[..., Coroutine[Any, Any, None]]
        serve = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("mooncake"):
            raise  # ours: no package would help
        raise MooncakeError(
            f"{role} needs the Python package {error.name}, which is not installed; "
            "`mooncake doctor` says what is missing and how to get it"
        ) from error
    return serve


def _say_ready(role: str, bound: dict[str, str], ready_fd: int) -> None:
    if ready_fd < 0:
        where = ", ".join(f"{name} {address}" for name, address in bound.items())
        print(f"mooncake {role} serves: {where}", file=sys.stderr)
        return
    with os.fdopen(ready_fd, "w") as stream:
        stream.write(json.dumps(bound) + "\n")
