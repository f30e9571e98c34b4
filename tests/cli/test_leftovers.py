"""What an `up` that is gone has left is ended; nothing else is."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mooncake_cli.leftovers import Identity, State, StateFile, clean_leftovers, identify


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that runs until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def gone() -> Identity:
    """Who a process was that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        who = identify(process.pid)
        process.kill()
    assert who is not None
    return who


def note(folder: Path, up: Identity, *children: Identity) -> Path:
    path = folder / "up-1-1.json"
    path.write_bytes(msgspec.json.encode(State(up=up, children=list(children))))
    return path


def test_a_child_of_a_dead_up_is_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    child = identify(sleeper.pid)
    assert child is not None
    path = note(tmp_path, gone(), child)
    assert clean_leftovers(tmp_path) == [child]
    assert sleeper.wait() == -signal.SIGKILL
    assert not path.exists()


@pytest.mark.parametrize("change", [{"started_ticks": 1}, {"command": "other"}, {"boot": "other"}])
def test_a_pid_that_is_somebody_else_now_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    child = identify(sleeper.pid)
    assert child is not None
    path = note(tmp_path, gone(), msgspec.structs.replace(child, **change))
    assert clean_leftovers(tmp_path) == []
    assert sleeper.poll() is None and not path.exists()


def test_an_up_that_runs_keeps_its_children(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    with StateFile(tmp_path) as state:
        state.write([sleeper.pid])
        assert clean_leftovers(tmp_path) == []
        assert sleeper.poll() is None
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_broken_note_is_removed(tmp_path: Path) -> None:
    (tmp_path / "up-2-2.json").write_text("{")
    assert clean_leftovers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_identified_by_a_pid_that_is_free_or_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        descriptor = os.pidfd_open(process.pid)
        process.kill()
        select.select([descriptor], [], [], 10)
        os.close(descriptor)
        assert identify(process.pid) is None, "dead, though nobody has waited for it"
    assert identify(process.pid) is None
