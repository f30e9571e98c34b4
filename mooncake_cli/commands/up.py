"""`mooncake up`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec
import typer

from mooncake_cli.child import Child
from mooncake_cli.flags import Json, with_flags
from mooncake_cli.leftovers import StateFile, clean_leftovers, state_folder
from mooncake_cli.plan import start_order
from mooncake_cli.render import print_table
from mooncake_cli.supervisor import Supervisor
from mooncake_core.config import UpConfig
from mooncake_core.errors import ConfigError
from mooncake_core.listening import bind


def run(
    config: UpConfig,
    port: int | None = typer.Option(
        None, min=0, max=65535, help="Of the public endpoint; 0 takes a free one."
    ),
    log_file: Path | None = typer.Option(
        None, help="Write the logs of the processes there instead of to stderr."
    ),
    as_json: bool = Json,
) -> None:
    """Run a whole cluster on this machine.

    Master, store nodes, prefill and decode instances and the conductor, each a process of its own,
    listen on loopback; only the conductor's address is public. A process that dies is started
    again. Ctrl-C stops all, a second one at once.
    """
    if port is not None:
        host = config.listen.rpartition(":")[0]
        config = msgspec.structs.replace(config, listen=f"{host}:{port}")
    with contextlib.ExitStack() as stack:
        log: TextIO = sys.stderr
        if log_file is not None:
            log = _opened(log_file)
            stack.callback(_close, log)
        asyncio.run(_run(config, Console(config, log, as_json=as_json)))


class Console:
    """Tells people, or a program, what happens."""

    def __init__(self, config: UpConfig, log: TextIO, *, as_json: bool) -> None:
        names = [part.name for group in start_order(config) for part in group]
        self._width = max(map(len, names))
        self._log = log
        self._as_json = as_json

    def log(self, name: str, line: str) -> None:
        """Write a process's own line after its name; a log that takes no more ends no service."""
        with contextlib.suppress(OSError):
            print(f"{name:{self._width}} | {line}", file=self._log, flush=True)

    def say(self, text: str) -> None:
        """Write a sentence about the processes to stderr."""
        with contextlib.suppress(OSError):
            print(f"mooncake up: {text}", file=sys.stderr, flush=True)

    def restarted(self, child: Child) -> None:
        """Say that a process serves again; with --json also as an object on a line of stderr."""
        self.say(f"{child.part.name} serves again, pid {child.pid}")
        if self._as_json:
            with contextlib.suppress(OSError):
                print(json.dumps({"processes": [child.report()]}), file=sys.stderr, flush=True)

    def ready(self, endpoint: str, model: str, children: list[Child]) -> None:
        """Say what was started, where, and how to try it."""
        reports = [child.report() for child in children]
        if self._as_json:
            answer = {"endpoint": f"http://{endpoint}", "model": model, "processes": reports}
            print(json.dumps(answer), flush=True)
            return
        rows = [[each["name"], str(each["pid"]), _where(each["addresses"])] for each in reports]
        print_table(["process", "pid", "listens on"], rows)
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        question = {"model": model, "temperature": 0, "max_tokens": 64, "messages": messages}
        print(
            f"\nMooncake serves {model} on http://{endpoint}. Try it:\n\n"
            f"  curl http://{endpoint}/v1/chat/completions -H 'content-type: application/json' \\\n"
            f"    -d '{json.dumps(question)}'\n\n"
            f"  {_this_command()} status --conductor {endpoint}\n\nCtrl-C stops it.",
            flush=True,
        )


def _this_command() -> str:
    """Return how to call `mooncake` in a line to paste, such as .venv/bin/mooncake."""
    return sys.argv[0] if Path(sys.argv[0]).name == "mooncake" else "mooncake"


def _opened(log_file: Path) -> TextIO:
    try:
        return log_file.open("a")
    except OSError as error:
        raise ConfigError(f"--log-file: cannot write {log_file}: {error.strerror}") from error


def _close(log: TextIO) -> None:
    """Close a log, whether or not its last lines find room."""
    with contextlib.suppress(OSError):
        log.close()


async def _run(config: UpConfig, console: Console) -> None:
    loop = asyncio.get_running_loop()
    folder = state_folder()
    for left in await asyncio.to_thread(clean_leftovers, folder):
        console.say(f"ended process {left.pid}, which an earlier `mooncake up` had left")
    bind(config.listen, "listen").close()  # a port in use is told before anything starts
    console.say(f"prepares the model {config.model.path}, then starts its processes")
    prepared = await asyncio.to_thread(_prepare, config)
    with StateFile(folder) as state:
        supervisor = Supervisor(prepared, state, console)
        loop.add_signal_handler(signal.SIGINT, supervisor.stop)
        loop.add_signal_handler(signal.SIGTERM, supervisor.stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            loop.add_signal_handler(signal.SIGHUP, supervisor.stop)
        await supervisor.run(
            lambda: console.ready(supervisor.endpoint, prepared.model.name, supervisor.children)
        )


def _prepare(config: UpConfig) -> UpConfig:
    """Return the config with a model that every process can load, converted once for all."""
    # Not at the top: only a start needs it, `--help` does not.
    from mooncake_core.model_spec.checkpoint import (  # noqa: PLC0415
        DUMMY,
        dummy_config,
        model_name,
        prepare_checkpoint,
    )

    model, path = config.model, config.model.path
    folder = prepare_checkpoint(path)
    path = f"{DUMMY}{dummy_config(path).resolve()}" if path.startswith(DUMMY) else str(folder)
    model = msgspec.structs.replace(model, path=path, name=model_name(model))
    return msgspec.structs.replace(config, model=model)


def _where(addresses: dict[str, Any]) -> str:
    return ", ".join(f"{name} {address}" for name, address in addresses.items())


command = with_flags("up", run)
