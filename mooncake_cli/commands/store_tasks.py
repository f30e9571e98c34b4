"""`mooncake store drain` and `mooncake store tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from mooncake_cli.flags import Json
from mooncake_cli.render import print_table
from mooncake_core.config import StoreClientConfig, load_config
from mooncake_core.errors import MooncakeError
from mooncake_core.units import format_size

if TYPE_CHECKING:
    from mooncake_core.store.tasks import StoreAdmin, TaskStatus

FOREVER_S = 1e6
_LAST_TASK = (1 << 64) - 1

Master: Any = typer.Option("127.0.0.1:7400", metavar="HOST:PORT", help="Where the master listens.")


def drain(
    name: str = typer.Argument(help="Of the node, or its transfer address."),
    *,
    master: str = Master,
    wait: bool = typer.Option(False, "--wait", help="Until it is empty; exit code 1 if not."),
    timeout_s: float = typer.Option(
        FOREVER_S, min=0, max=FOREVER_S, show_default="none", help="Of --wait."
    ),
    undo: bool = typer.Option(
        False, "--undo", help="End its drain, also one that is done: it takes objects again."
    ),
    as_json: bool = Json,
) -> None:
    """Move all that a store node holds to others, so that it may leave.

    Nothing is evicted for it, and nothing is lost: what has no room elsewhere stays, and the task
    says how much. Meanwhile, and once it is empty, the node takes nothing new.
    """
    if undo and wait:
        raise typer.BadParameter("--undo is done at once; leave --wait out")
    admin = _admin(master)
    task = admin.undrain(name) if undo else admin.drain(name)
    status = admin.wait(task, timeout_s if wait else 0)
    _show([status], as_json=as_json)
    if wait and status.state != "done":
        raise MooncakeError(f"{name} is not empty: {status.problem or status.state}")


def tasks(
    master: str = Master,
    cancel: int | None = typer.Option(
        None, metavar="TASK", min=0, max=_LAST_TASK, help="End this one where it is."
    ),
    as_json: bool = Json,
) -> None:
    """Show copies, moves and drains that run or have run in the background."""
    admin = _admin(master)
    if cancel is None:
        _show(admin.tasks(), as_json=as_json)
        return
    status = admin.cancel_task(cancel)
    if status is None:
        raise MooncakeError(f"task {cancel} is not known")
    _show([status], as_json=as_json)


def _admin(master: str) -> StoreAdmin:
    # The native library is loaded only when it is needed: help should be quick.
    from mooncake_core.store.tasks import StoreAdmin  # noqa: PLC0415

    config, _ = load_config(StoreClientConfig, None, {"master": master})
    return StoreAdmin(config.master)


def _show(all_of: Sequence[TaskStatus], *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(all_of).decode())
        return
    columns = ("task", "kind", "state", "of", "objects", "bytes", "age", "problem")
    print_table(columns, [_row(each) for each in all_of])


def _row(status: TaskStatus) -> tuple[str, ...]:
    return (
        str(status.task),
        status.kind,
        status.state,
        status.source if status.kind == "drain" else status.key,
        f"{status.done_objects}/{status.total_objects}",
        f"{format_size(status.done_bytes)} of {format_size(status.total_bytes)}",
        f"{status.age_s:.1f} s",
        status.problem,
    )
