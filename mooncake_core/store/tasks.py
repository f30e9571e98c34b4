"""What the store does in the background when it is asked to: copies, moves, drains."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, msgpack

from mooncake_core.config import StoreClientConfig, checked
from mooncake_core.errors import StoreError
from mooncake_core.native import _native, native_errors
from mooncake_core.store.options import (
    MAX_BYTES,
    Key,
    check_names,
    check_number,
    check_timeout,
    check_type,
    raw,
)

TaskKind = Literal["copy", "move", "drain"]
TaskState = Literal["running", "done", "failed", "cancelled"]
_KINDS: tuple[TaskKind, ...] = ("copy", "move", "drain")
_UNDRAIN = 3  # asked for like a task, and none
_STATES: tuple[TaskState, ...] = ("running", "done", "failed", "cancelled")
_POLL_S = 0.1


class TaskStatus(Struct, frozen=True, kw_only=True):
    """One task, as of now."""

    task: int
    kind: TaskKind
    state: TaskState
    key: str
    """Of copies and moves; bytes that are no text are replaced."""
    source: str
    """The node that is drained or moved from, by name."""
    done_objects: int
    total_objects: int
    """Of a drain, extents: an object in several stripes counts more than once."""
    done_bytes: int
    total_bytes: int
    age_s: float
    problem: str
    """Why it failed, or what it waits for."""


class _Task(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    task: int
    kind: int
    state: int
    key: bytes
    source: bytes
    done_objects: int
    total_objects: int
    done_bytes: int
    total_bytes: int
    age_us: int
    problem: bytes


class _Tasks(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    tasks: list[_Task]


class StoreAdmin:
    """Asks a master for background tasks. Calls block; any thread may make them.

    All of them raise StoreUnavailable while the master is away. The message of a StoreError says
    why a task was refused.
    """

    def __init__(self, master: str, *, timeout_s: float = 5.0) -> None:
        """Ask the master at `master`, host:port of its RPC address; it need not be there yet.

        Raises:
            ConfigError: that is no address.
        """
        check_timeout(timeout_s)
        config = checked(StoreClientConfig(master=master), StoreClientConfig, name="StoreAdmin")
        self._client = _native.MasterClient(config.master)
        self._timeout_s = timeout_s

    def copy(self, key: Key, targets: Iterable[str] = ()) -> int:
        """Make one copy more on each of these nodes, or on one that has room; returns the task.

        Raises:
            StoreError: there is no such object or node.
        """
        return self._create("copy", key, "", targets)

    def move(self, key: Key, source: str, target: str = "") -> int:
        """Move the copy that node `source` has to `target`, or to where there is room.

        Readers of before finish where they are. Returns the task.

        Raises:
            StoreError: there is no such object or node.
        """
        return self._create("move", key, source, [target] if target else [])

    def drain(self, node: str) -> int:
        """Move all that a node has to others, evicting nothing; it takes nothing new.

        Once it is empty it may leave, or be taken back by `undrain`. If some has no room elsewhere
        the task fails and says how much, and the node takes objects again. Returns the task.

        Raises:
            StoreError: there is no such node.
        """
        return self._create("drain", b"", node, ())

    def undrain(self, node: str) -> int:
        """Let a node take objects again that is being drained, or was; returns that task.

        What has moved stays where it is.

        Raises:
            StoreError: there is no such node, or it is not being drained.
        """
        return self._create("undrain", b"", node, ())

    def tasks(self) -> list[TaskStatus]:
        """Return those that run, and the last thousand that have ended."""
        return self._query([], is_cancel=False)

    def task(self, task: int) -> TaskStatus | None:
        """Return how far a task is; None: it is not known, or forgotten."""
        return next(iter(self._query([task], is_cancel=False)), None)

    def cancel_task(self, task: int) -> TaskStatus | None:
        """End a task where it is: what was copied stays. One that has ended stays as it is."""
        return next(iter(self._query([task], is_cancel=True)), None)

    def wait(self, task: int, timeout_s: float) -> TaskStatus:
        """Wait until a task has ended, or the time is over; returns how far it is then.

        Raises:
            StoreError: the task is not known.
        """
        check_timeout(timeout_s)
        end_s = time.monotonic() + timeout_s
        while True:
            status = self.task(task)
            if status is None:
                raise StoreError(f"task {task} is not known; the master may have started again")
            if status.state != "running" or time.monotonic() >= end_s:
                return status
            time.sleep(_POLL_S)

    def _create(
        self,
        kind: TaskKind | Literal["undrain"],
        key: Key,
        source: str,
        targets: Iterable[str],
    ) -> int:
        names = check_names(targets, "targets")
        check_type("the name of a node", source, str, "a text")
        with native_errors:
            task, problem = _native.create_task(
                self._client,
                kind=_UNDRAIN if kind == "undrain" else _KINDS.index(kind),
                key=raw(key),
                source=source,
                targets=list(names),
                timeout_s=self._timeout_s,
            )
        if not task:
            raise StoreError(f"{kind}: {problem}")
        return int(task)

    def _query(self, tasks: list[int], *, is_cancel: bool) -> list[TaskStatus]:
        for task in tasks:
            check_number("task", task, 0, MAX_BYTES)
        with native_errors:
            body = _native.query_tasks(
                self._client, tasks=tasks, is_cancel=is_cancel, timeout_s=self._timeout_s
            )
        return [_status(task) for task in msgpack.decode(body, type=_Tasks).tasks]


def _status(task: _Task) -> TaskStatus:
    return TaskStatus(
        task=task.task,
        kind=_KINDS[task.kind],
        state=_STATES[task.state],
        key=task.key.decode(errors="replace"),
        source=task.source.decode(errors="replace"),
        done_objects=task.done_objects,
        total_objects=task.total_objects,
        done_bytes=task.done_bytes,
        total_bytes=task.total_bytes,
        age_s=task.age_us / 1e6,
        problem=task.problem.decode(errors="replace"),
    )


def drain_for(master: str, node: str, longest_s: float) -> str:
    """Drain a node that is about to leave, for at most so long; returns what is still there, or "".

    Gives up at once when what is left has no room elsewhere, or nobody can be asked.
    """
    try:
        admin = StoreAdmin(master)
        status = admin.wait(admin.drain(node), longest_s)
    except StoreError as error:
        return str(error)
    return "" if status.state == "done" else status.problem or status.state
