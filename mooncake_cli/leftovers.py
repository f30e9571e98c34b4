"""Processes that outlived the `mooncake up` that had started them, and how they are ended.

Every `up` notes its processes in one file while it runs. A process is known by its pid, its start
time and its command line, within one boot of the machine; only what matches in all is ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec

from mooncake_core.errors import ConfigError


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process for ever: a pid alone may be used again."""

    pid: int
    started_ticks: int
    command: str
    boot: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What one `up` notes."""

    up: Identity
    children: list[Identity]


class StateFile:
    """The note of this process; `with` writes it, and removes it at the end."""

    def __init__(self, folder: Path) -> None:
        me = identify(os.getpid())
        assert me is not None, "this process has an entry in /proc"
        self._me = me
        self._path = folder / f"up-{me.pid}-{me.started_ticks}.json"

    def __enter__(self) -> StateFile:
        """Raises ConfigError: nothing can be written there."""
        folder = self._path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.write(())
        except OSError as error:
            raise ConfigError(
                f"{folder}: cannot note there which processes run: {error.strerror}; "
                "HOME must name a folder that can be written"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    def write(self, pids: Iterable[int]) -> None:
        """Note the living ones of these processes. Raises OSError, for example of a full disk."""
        children = [child for pid in pids if (child := identify(pid)) is not None]
        partial = self._path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(State(up=self._me, children=children)))
        partial.replace(self._path)


def state_folder() -> Path:
    """Return where notes are kept: a folder that only this user can read."""
    return Path.home() / ".local" / "state" / "mooncake"


def identify(pid: int) -> Identity | None:
    """Return who a pid is now; None if nobody or dead already."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # "pid (name) state ...": the name may hold anything, so count from its end; proc(5).
    state, *fields = stat.rpartition(")")[2].split()
    if state in "ZX":
        return None
    return Identity(
        pid=pid,
        started_ticks=int(fields[18]),
        command=command.decode(errors="replace").replace("\0", " ").strip(),
        boot=boot,
    )


def clean_leftovers(folder: Path) -> list[Identity]:
    """End what ups that are gone have left, forget them, and return what was ended."""
    ended = []
    for path in sorted(folder.glob("up-*.json")):
        try:
            state = msgspec.json.decode(path.read_bytes(), type=State)
        except OSError:  # gone meanwhile, or not ours to read
            continue
        except msgspec.DecodeError:
            path.unlink(missing_ok=True)
            continue
        if identify(state.up.pid) == state.up:
            continue
        ended += [child for child in state.children if _end(child)]
        path.unlink(missing_ok=True)
    return ended


def _end(who: Identity) -> bool:
    """Kill exactly this process; False if it is gone already."""
    try:
        pidfd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        # The pidfd holds one process; if it is the right one now, it cannot become another.
        if identify(who.pid) != who:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], 5.0)
        return True
    finally:
        os.close(pidfd)
