"""A daemon says when it serves, stops when it is told, and dies with who started it."""

import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
from typing import IO

MASTER = [sys.executable, "-m", "mooncake_cli", "master", "--listen=127.0.0.1:0"]


def line_of(stream: IO[str], pattern: str) -> str:
    """Return the first line that matches."""
    for line in stream:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"the stream ended without {pattern!r}")


def test_it_tells_people_that_it_serves_and_stops_when_told() -> None:
    with subprocess.Popen(
        [*MASTER, "--admin=127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = line_of(process.stderr, "mooncake master serves")
        assert re.search(r"rpc 127\.0\.0\.1:[1-9]\d*, admin 127\.0\.0\.1:[1-9]", line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_status_says_when_another_process_answers() -> None:
    with subprocess.Popen(
        [*MASTER, "--admin=127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = line_of(process.stderr, "mooncake master serves")
        rpc, admin = re.findall(r"127\.0\.0\.1:\d+", line)
        for flag, problem in (
            (f"--conductor={admin}", "who answers there is no conductor"),
            (f"--master={rpc}", "the answer is not JSON over HTTP; --master is here the master's"),
            (f"--conductor={rpc}", "--conductor is the address that requests go to"),
        ):
            answer = subprocess.run(
                [sys.executable, "-m", "mooncake_cli", "status", flag],
                capture_output=True,
                text=True,
                check=False,
                timeout=20,
            )
            assert answer.returncode == 1 and problem in answer.stderr, answer
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_it_tells_a_supervisor_on_the_descriptor_that_it_gave() -> None:
    read_fd, write_fd = os.pipe()
    command = [*MASTER, "--admin=127.0.0.1:0", f"--ready-fd={write_fd}"]
    with (
        subprocess.Popen(command, pass_fds=(write_fd,), stderr=subprocess.DEVNULL) as process,
        os.fdopen(read_fd) as stream,
    ):
        os.close(write_fd)
        bound = json.loads(stream.readline())
        assert sorted(bound) == ["admin", "rpc"]
        assert stream.read() == "", "it says so once and closes"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def test_it_may_open_as_many_files_as_the_system_allows() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limited = ["sh", "-c", 'ulimit -Sn 256 && exec "$@"', "sh", *MASTER, "--admin=127.0.0.1:0"]
    with subprocess.Popen(limited, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line_of(process.stderr, "mooncake master serves")
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_an_address_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = subprocess.run(
            [*MASTER, f"--admin={address}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    assert answer.returncode == 1
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("mooncake: ")]
    assert "--admin" in line and address in line and "in use" in line
    assert "Traceback" not in answer.stderr


def test_it_dies_with_who_started_it() -> None:
    starter = (
        "import subprocess, sys, os\n"
        "command = [*sys.argv[1:], f'--parent={os.getpid()}']\n"
        "process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)\n"
        "for line in process.stderr:\n"
        "    if 'mooncake master serves' in line: break\n"
        "print(process.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter, *MASTER, "--admin=127.0.0.1:0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        descriptor = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.kill()
            assert select.select([descriptor], [], [], 10)[0], "it has ended"
        finally:
            os.close(descriptor)


def test_it_does_not_start_for_a_parent_that_is_gone() -> None:
    answer = subprocess.run(
        [*MASTER, "--admin=127.0.0.1:0", "--parent=1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert answer.returncode == 1
    assert "process 1, which started this one, is gone" in answer.stderr
