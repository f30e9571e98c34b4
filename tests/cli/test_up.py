"""`mooncake up` as a whole: it starts, answers, repairs itself, and leaves nothing behind."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooncake_cli.http import get_json
from mooncake_core.errors import MooncakeError
from tests.cluster.daemons import TINY

pytestmark = pytest.mark.cluster

SMALL = (
    "--stores=1",
    "--prefills=1",
    "--decodes=1",
    "--store-capacity=8 MiB",
    "--pool-tokens=2048",
)


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 30) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}")


class Home:
    """A place for everything that one or more ups may leave, and a mark on their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"MOONCAKE_TEST={uuid.uuid4().hex}"
        self.model = folder / "tiny" / "config.json"
        for name in ("tiny", "tmp", "home"):
            (folder / name).mkdir()
        self.model.write_text(json.dumps(TINY))
        self.ups: list[Up] = []
        self._shm = set(os.listdir("/dev/shm"))

    def start(self, *flags: str, json_output: bool = True) -> "Up":
        name, _, value = self.mark.partition("=")
        environment = {
            **os.environ,
            **{"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp")},
            **{name: value, "PYTHONPATH": os.pathsep.join(sys.path)},
        }
        command = [sys.executable, "-m", "mooncake_cli", "up", *SMALL, *flags]
        if not any(flag.startswith("--listen") for flag in flags):
            command.append("--port=0")
        command += [f"--model=dummy:{self.model}", *(["--json"] if json_output else [])]
        log = self.folder / f"{uuid.uuid4().hex}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
            )
        self.ups.append(Up(process, log))
        return self.ups[-1]

    def processes(self) -> list[int]:
        """Return every process that an up of this home has started, and the ups."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found

    def is_clean(self) -> bool:
        notes = self.folder / "home" / ".local" / "state" / "mooncake"
        return (
            not self.processes()
            and not list((self.folder / "tmp").iterdir())
            and not (notes.exists() and list(notes.iterdir()))
            and not [name for name in set(os.listdir("/dev/shm")) - self._shm if "moon" in name]
        )


class Up:
    """A running `mooncake up`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> "Up":
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready = json.loads(line)
        return self

    @property
    def address(self) -> str:
        return str(self.ready["endpoint"]).removeprefix("http://")

    def member(self, name: str) -> dict[str, Any]:
        """Return a process as it was reported last."""
        reports = [self.ready] + [
            json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")
        ]
        found = [each for report in reports for each in report["processes"] if each["name"] == name]
        return dict(found[-1])

    def answers(self) -> bool:
        try:
            return get_json(self.address, "/health")[0] == 200
        except MooncakeError:
            return False

    def end(self, *numbers: signal.Signals) -> int:
        for number in numbers:
            self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    for pid in home.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for up in home.ups:
        up.end()


def complete(address: str, model: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        body = {"model": model, "prompt": "abc", "max_tokens": 4, "temperature": 0}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return dict(json.loads(answer.read()))
    finally:
        connection.close()


def test_it_answers_repairs_itself_and_leaves_nothing_after_ctrl_c(home: Home) -> None:
    up = home.start().wait_ready()
    names = [each["name"] for each in up.ready["processes"]]
    assert names == ["master", "conductor", "store-0", "prefill-0", "decode-0"]
    assert "torch" not in Path(f"/proc/{up.process.pid}/maps").read_text()
    assert complete(up.address, up.ready["model"])["usage"]["completion_tokens"] == 4

    for name in ("store-0", "decode-0", "conductor", "master"):
        before = up.member(name)
        os.kill(before["pid"], signal.SIGKILL)
        eventually(lambda: up.member(name)["pid"] != before["pid"], f"{name} runs again")  # noqa: B023
        assert up.member(name)["address"] == before["address"]
        assert f"{name} was killed by SIGKILL; starting it again" in up.log.read_text()
    eventually(up.answers, "the cluster is healthy")
    eventually(lambda: complete(up.address, up.ready["model"]), "it answers again")

    assert up.end(signal.SIGINT) == 0
    assert home.is_clean(), home.processes()


def test_its_own_crash_takes_its_processes_along_and_the_next_start_forgets_it(home: Home) -> None:
    up = home.start().wait_ready()
    assert len(home.processes()) == 6
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    eventually(lambda: not home.processes(), "every process has died", 5)
    assert not home.is_clean(), "its note is still there"
    assert home.start().wait_ready().end(signal.SIGTERM) == 0
    assert home.is_clean()


def test_two_clusters_run_side_by_side(home: Home) -> None:
    ups = [home.start(), home.start()]
    first, second = (up.wait_ready() for up in ups)
    assert first.address != second.address
    assert first.end(signal.SIGINT) == 0
    assert second.answers()
    assert second.end(signal.SIGINT) == 0
    assert home.is_clean()


def test_a_second_ctrl_c_does_not_wait_for_who_hangs(home: Home) -> None:
    up = home.start().wait_ready()
    os.kill(up.member("decode-0")["pid"], signal.SIGSTOP)
    up.process.send_signal(signal.SIGINT)
    eventually(lambda: not up.answers(), "it stops")
    start = time.monotonic()
    assert up.end(signal.SIGINT) == 0
    assert time.monotonic() - start < 5
    assert home.is_clean()


def test_being_stopped_while_it_starts_leaves_nothing(home: Home) -> None:
    up = home.start()
    eventually(lambda: len(home.processes()) > 1, "a process has started")
    assert up.end(signal.SIGTERM) == 0
    assert home.is_clean()


def test_a_port_in_use_is_one_clear_line_before_anything_starts(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        up = home.start(f"--listen={address}", json_output=False)
        assert up.end() == 1
    (line,) = [line for line in up.log.read_text().splitlines() if line.startswith("mooncake: ")]
    assert address in line and "in use" in line
    assert "starts its processes" not in up.log.read_text()
    assert home.is_clean()


def test_a_model_that_is_none_is_one_clear_line(home: Home) -> None:
    home.model.write_text("{}")
    up = home.start(json_output=False)
    assert up.end() == 1
    (line,) = [line for line in up.log.read_text().splitlines() if line.startswith("mooncake: ")]
    assert "config.json" in line
    assert home.is_clean()


def test_a_home_that_cannot_be_written_is_one_clear_line(home: Home) -> None:
    blocked = home.folder / "home" / ".local"
    blocked.touch()
    up = home.start()
    assert up.end() == 1
    *_, line = up.log.read_text().splitlines()
    assert line.startswith("mooncake: ") and str(blocked) in line and "HOME" in line


def test_a_log_that_cannot_be_opened_is_one_clear_line(home: Home) -> None:
    up = home.start("--log-file", "/nowhere/up.log")
    assert up.end() == 1
    (line,) = up.log.read_text().splitlines()
    assert line.startswith("mooncake: --log-file: ") and "/nowhere/up.log" in line
    assert home.is_clean()


def test_a_full_disk_under_the_log_ends_no_service(home: Home) -> None:
    up = home.start("--log-file", "/dev/full").wait_ready()
    assert up.end(signal.SIGINT) == 0
    assert "Traceback" not in up.log.read_text()
    assert home.is_clean()


def test_people_get_a_table_and_a_line_to_paste(home: Home) -> None:
    up = home.start("--log-file", str(home.folder / "cluster.log"), json_output=False)
    assert up.process.stdout is not None
    text = ""
    while "Ctrl-C stops it" not in text:
        line = up.process.stdout.readline()
        assert line, up.log.read_text()
        text += line
    assert "prefill-0" in text and "curl http://127.0.0.1:" in text and "mooncake status" in text
    assert up.end(signal.SIGINT) == 0
    assert "master    | " in (home.folder / "cluster.log").read_text()
    assert home.is_clean()
