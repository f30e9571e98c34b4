r"""`mooncake store ls | rm | put | get`: the objects of a store, for people and scripts.

Keys are shown and given as UTF-8 text in which a byte may be written \xNN.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from mooncake_cli.object_keys import parse, shown
from mooncake_core.config import StoreClientConfig, TransferConfig, load_config
from mooncake_core.errors import ConfigError, MooncakeError
from mooncake_core.store import ObjectDescription, PutOptions, PutResult, StoreClient
from mooncake_core.store.patterns import list_matching, remove_by_prefix, remove_matching
from mooncake_core.transfer import TransferEngine

_DEFAULT = StoreClientConfig().master
Master: Any = typer.Option(
    _DEFAULT,
    metavar="HOST:PORT",
    show_default=False,
    help=f"Where the master listens. [default: {_DEFAULT}]",
)
Regex: Any = typer.Option(None, metavar="R", help="Only keys that this expression is found in.")

_WHY_NOT = {
    PutResult.EXISTS: "it is there already; --upsert replaces it",
    PutResult.BUSY: "another put of it is under way",
    PutResult.NOT_ADMITTED: "the master's admission policy does not want it yet",
}


def list_command(
    prefix: str = typer.Argument("", help="What the keys start with."),
    regex: str | None = Regex,
    long: bool = typer.Option(False, "--long", "-l", help="Size, pin, leases and nodes as well."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object a line, with all."),
    master: str = Master,
) -> None:
    r"""List the keys of a store, in no order.

    A byte of a key that is no UTF-8, or that terminals do not show, is written \xNN, and a
    backslash \\; keys and prefixes are given so, too. The expression is Python's, and looked for
    anywhere in a key; ^ ties it to the start.
    """
    line = _json_line if as_json else _long_line if long else _short_line
    with _client(master) as client, _until_nobody_reads():
        for one in _found(client, parse(prefix), regex):
            print(line(one))


def remove_command(
    keys: list[str] | None = typer.Argument(None, help="Keys."),
    prefix: str | None = typer.Option(None, metavar="P", help="All keys that start with this."),
    regex: str | None = Regex,
    master: str = Master,
) -> None:
    """Remove objects at once, without asking, and print how many there were.

    Keys, --prefix or --regex; --prefix "" is all. Readers that have begun end undisturbed.
    """
    if sum((bool(keys), prefix is not None, regex is not None)) != 1:
        raise typer.BadParameter("one of KEYS, --prefix and --regex is needed")
    with _client(master) as client:
        if prefix is not None:
            count = remove_by_prefix(client, parse(prefix))
        elif regex is not None:
            with _usage_errors():
                count = remove_matching(client, regex)
        else:
            count = sum(client.batch_remove([parse(key) for key in keys or ()]))
    print(count)


def put_command(
    key: str = typer.Argument(help="Of the object."),
    file: typer.FileBinaryRead = typer.Argument(metavar="FILE", help="Its bytes; - is stdin."),
    upsert: bool = typer.Option(False, "--upsert", help="Replace what is there."),
    replicas: int | None = typer.Option(None, min=1, max=16, help="Copies, on distinct nodes."),
    master: str = Master,
) -> None:
    """Store a file's bytes under a key. One that is there already stays, and the exit code is 1."""
    value = file.read()
    with _client(master) as client:
        options = PutOptions(replicas=replicas, upsert=upsert)
        result = client.put(parse(key), value, options=options)
    if not result:
        raise MooncakeError(f"{key}: {_WHY_NOT[result]}")


def get_command(
    key: str = typer.Argument(help="Of the object."),
    output: Path | None = typer.Option(None, "--output", "-o", metavar="FILE", help="Not stdout."),
    master: str = Master,
) -> None:
    """Write an object's bytes to stdout or a file. Where there is none, the exit code is 1."""
    with _client(master) as client:
        value = client.get(parse(key))
    if value is None:
        raise MooncakeError(f"{key}: there is no such object")
    if output is None:
        with _until_nobody_reads():
            sys.stdout.buffer.write(value)
        return
    try:
        output.write_bytes(value)
    except OSError as error:
        raise ConfigError(f"--output: {output}: {error.strerror}") from error


@contextmanager
def _client(master: str) -> Iterator[StoreClient]:
    config, _ = load_config(StoreClientConfig, None, {"master": master})
    engine = TransferEngine(TransferConfig())
    try:
        client = StoreClient(engine, config)
        try:
            yield client
        finally:
            client.close()
    except ValueError as error:
        raise MooncakeError(str(error)) from error
    finally:
        engine.close()


@contextmanager
def _until_nobody_reads() -> Iterator[None]:
    """End well when whoever reads our output has read enough, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_stdout()
    except OSError as error:
        _leave_stdout()
        raise MooncakeError(f"stdout: {error.strerror}") from error


def _leave_stdout() -> None:
    """Have nothing more written there at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--regex") from error


def _found(client: StoreClient, prefix: bytes, regex: str | None) -> Iterator[ObjectDescription]:
    if regex is None:
        yield from client.list_objects(prefix)
        return
    with _usage_errors():
        matching = list_matching(client, regex, prefix=prefix)
    yield from matching


def _short_line(one: ObjectDescription) -> str:
    return shown(one.key)


def _long_line(one: ObjectDescription) -> str:
    nodes = ",".join(one.nodes) or "-"
    return f"{one.size_bytes:>14,}  {one.pin:<4}  {one.leases:>3}  {nodes}  {shown(one.key)}"


def _json_line(one: ObjectDescription) -> str:
    fields = msgspec.structs.asdict(one)
    return msgspec.json.encode(
        {**fields, "key": shown(one.key), "group": shown(one.group)}
    ).decode()
