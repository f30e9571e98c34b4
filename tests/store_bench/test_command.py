"""`mooncake store bench` as a user meets it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mooncake_cli.app import main
from mooncake_core.native import _native
from mooncake_core.store_bench.plan import Case, filled_key, pattern_of
from tests.store.processes import Cluster, eventually

QUICK = ("--seconds=0.05", "--warm-up-s=0.02", "--repeats=2", "--keys=32", "--memory=1MiB")
SMALL = Case(operation="get", size_bytes=4096, batch=1, threads=1)


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "mooncake_cli", "store", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str) -> tuple[int, str, str]:
    process = start(*arguments)
    try:
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, output, errors


def measured(*arguments: str) -> dict[str, Any]:
    code, output, errors = run(*arguments, "--json")
    assert code == 0, errors
    report: dict[str, Any] = json.loads(output)
    return report


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster("shm", nodes=1, capacity="16 MiB")
    yield cluster
    cluster.close()


def test_loopback_measures_every_operation_and_finds_no_wrong_byte() -> None:
    flags = ("--loopback", "--capacity=64 MiB", "--verify", "--op=put,get,mixed,exists")
    report = measured(*flags, "--size=1 B,64 KiB", "--batch=4", "--threads=2", *QUICK)
    assert report["is_complete"] and len(report["rows"]) == 8
    for row in report["rows"]:
        assert row["wrong"] == 0 and row["failures"] == {} and row["read_faults"] == {}
        names = [each["operation"] for each in row["operations"]]
        kind = row["case"]["operation"]
        assert sorted(names) == (["get", "put"] if kind == "mixed" else [kind])
        for each in row["operations"]:
            assert each["hit_ratio"] == 1 and each["ops_per_s"] > 0 and len(each["samples"]) == 2
            assert (each["gb_per_s"] > 0) == (each["operation"] != "exists")


def test_a_running_store_is_measured_by_several_processes_and_left_empty(
    cluster: Cluster,
) -> None:
    where = ("--master", cluster.rpc, "--clients=2", "--mode=bytes", "--choice=zipf", "--verify")
    report = measured(*where, "--op=get,mixed", "--size=4KiB", "--count=50", *QUICK)
    get, mixed = report["rows"]
    # Two clients, two measurements, and one warm-up that is not counted.
    assert get["operations"][0]["calls"] == 200
    assert sum(each["calls"] for each in mixed["operations"]) == 200
    assert cluster.stats().objects == 0


def test_a_pool_that_is_too_small_evicts_and_is_told(cluster: Cluster) -> None:
    where = ("--master", cluster.rpc, "--op=put,get", "--size=256 KiB", "--verify")
    report = measured(*where, *QUICK, "--keys=100", "--count=110")
    put, get = report["rows"]
    assert put["failures"] == {} and put["evictions"] > 0 and put["wrong"] == 0
    assert 0.1 < get["operations"][0]["hit_ratio"] < 1


def test_people_are_told_the_same() -> None:
    code, output, errors = run("--loopback", "--op=mixed,get", "--size=4KiB", "--verify", *QUICK)
    assert code == 0, errors
    for words in ("mixed 4 KiB x 1 x 1", "  put 4 KiB", "100.0%", "Every byte that was read"):
        assert words in output


def test_foreign_bytes_under_a_key_fail_the_run(cluster: Cluster) -> None:
    key = filled_key("foreign", SMALL, 3)
    assert cluster.client.put(key, b"\xee" * 4096)
    where = ("--master", cluster.rpc, "--prefix=foreign", "--op=get", "--size=4KiB", "--verify")
    code, output, errors = run(*where, "--json", *QUICK)
    assert code == 1 and errors == ""
    (row,) = json.loads(output)["rows"]
    assert row["wrong"] > 0
    assert re.match(r"byte \d of b'foreign/4096/3' is 0xee instead of 0x", row["first_wrong"])


def test_a_byte_that_changes_in_the_nodes_memory_fails_the_run(cluster: Cluster) -> None:
    where = ("--master", cluster.rpc, "--prefix=flip", "--op=get", "--size=4KiB", "--verify")
    bench = start(*where, "--progress", "--json", *QUICK, "--keys=1", "--seconds=1")
    assert bench.stderr is not None
    while "1 of 2" not in bench.stderr.readline():
        assert bench.poll() is None
    flip_byte_of(filled_key("flip", SMALL, 0), cluster.nodes[0].child.pid)
    output, _ = bench.communicate(timeout=60)
    assert bench.returncode == 1
    (row,) = json.loads(output)["rows"]
    assert row["read_faults"] == {"corrupt": 1} and row["wrong"] == 0


def flip_byte_of(key: bytes, pid: int) -> None:
    """Change one byte of a stored value where it lies."""
    value = bytearray(SMALL.size_bytes)
    _native.fill_pattern(value, pattern_of(key))
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "/memfd:" not in line:
                continue
            first, last = (int(number, 16) for number in line.split()[0].split("-"))
            memory.seek(first)
            at = memory.read(last - first).find(value)
            if at >= 0:
                memory.seek(first + at + 100)
                memory.write(bytes([value[100] ^ 1]))
                return
    raise AssertionError(f"{key!r} is not in the memory of process {pid}")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_prints_what_there_is_and_ends_every_process(
    number: signal.Signals, code: int
) -> None:
    flags = ("--loopback", "--progress", "--json", "--op=get", "--size=4KiB", *QUICK)
    bench = start(*flags, "--repeats=1000")
    assert bench.stderr is not None
    while "3 of 1000" not in bench.stderr.readline():
        assert bench.poll() is None
    children = children_of(bench.pid)
    assert len(children) == 3
    bench.send_signal(number)
    output, errors = bench.communicate(timeout=30)
    assert bench.returncode == code, errors
    report = json.loads(output)
    assert not report["is_complete"] and len(report["rows"][0]["operations"][0]["samples"]) >= 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_removes_what_it_has_put_at_once(
    cluster: Cluster, number: signal.Signals, code: int
) -> None:
    where = ("--master", cluster.rpc, "--op=put", "--size=1 B", "--seconds=600")
    before = cluster.stats().puts
    bench = start(*where, "--keys=1000", "--threads=2", "--clients=2")
    # So many that what the clients have to say of them fills their pipes.
    eventually(lambda: cluster.stats().puts > before + 60_000, "many puts", timeout_s=60)
    bench.send_signal(number)
    _, errors = bench.communicate(timeout=15)
    assert bench.returncode == code and "could not be removed" not in errors, errors
    assert cluster.stats().objects == 0


def test_a_run_that_is_interrupted_while_it_fills_the_store_leaves_it_empty(
    cluster: Cluster,
) -> None:
    bench = start("--master", cluster.rpc, "--op=get", "--size=1 B", "--keys=10000000")
    eventually(lambda: cluster.stats().objects > 2000, "some are filled")
    bench.send_signal(signal.SIGTERM)
    bench.communicate(timeout=15)
    assert bench.returncode == 143
    assert cluster.stats().objects == 0


def test_keys_that_cannot_be_removed_are_told_and_how_to_remove_them() -> None:
    cluster = Cluster("shm", nodes=1, capacity="16 MiB")
    try:
        where = ("--master", cluster.rpc, "--prefix=of mine", "--op=get", "--size=4 KiB")
        bench = start(*where, "--keys=32", "--seconds=600", "--progress")
        assert bench.stderr is not None
        while "1 of 3" not in bench.stderr.readline():
            assert bench.poll() is None
        cluster.master.kill()
        bench.send_signal(signal.SIGTERM)
        _, errors = bench.communicate(timeout=30)
    finally:
        cluster.close()
    assert bench.returncode == 143
    how = f"mooncake store rm --prefix 'of mine/' --master {cluster.rpc}"
    assert f"32 keys could not be removed; once it answers: {how}\n" in errors


def test_processes_end_by_themselves_when_the_command_is_killed() -> None:
    flags = ("--loopback", "--progress", "--op=get", "--size=4KiB", *QUICK, "--repeats=1000")
    bench = start(*flags)
    assert bench.stderr is not None
    while "1 of 1000" not in bench.stderr.readline():
        assert bench.poll() is None
    children = children_of(bench.pid)
    bench.kill()
    bench.communicate()
    eventually(lambda: not any(is_running(pid) for pid in children), "all have ended")


def is_running(pid: int) -> bool:
    """Return whether a process is there that is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("code", "arguments", "problem"),
    [
        (1, ("--master=127.0.0.1:1", "--timeout-s=0.2"), "127.0.0.1:1"),
        (1, ("--loopback", "--capacity=900 TiB"), "--capacity: 900.00 TiB are needed"),
        (1, ("--loopback", "--transfer-listen=203.0.113.9:0"), "listen on 203.0.113.9:0"),
        (2, ("--loopback", "--size=4 QiB"), "--size: '4 QiB': unknown unit"),
        (2, ("--loopback", "--op=take"), "--op: 'take' is none of"),
        (2, ("--loopback", "--keys=1", "--threads=2"), "--keys: 1 are too few"),
        (2, ("--nodes=2",), "--nodes: only with loopback"),
        (2, ("--prefix=\udcff",), r"--prefix: '\udcff' is no plain text"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_1_and_wrong_usage_2(
    code: int, arguments: tuple[str, ...], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "bench", *arguments]) == code
    shown = capfd.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("mooncake: ") and problem in line and shown.out == ""


def test_a_store_without_nodes_is_told() -> None:
    cluster = Cluster("shm", nodes=0)
    try:
        code, output, errors = run("--master", cluster.rpc, *QUICK)
    finally:
        cluster.close()
    assert (code, output) == (1, "")
    assert errors == f"mooncake: {cluster.rpc}: no store node is online there\n"


def test_help_of_the_group_names_bench_and_the_nodes_flags() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "mooncake_cli", "store", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "bench" in answer.stdout and "--capacity" in answer.stdout


def test_flags_of_the_node_are_refused_before_bench(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "--capacity=1GiB", "bench"]) == 2
    assert "--capacity: not before bench, but after it" in capfd.readouterr().err


def test_without_a_subcommand_it_is_a_store_node() -> None:
    reading, writing = os.pipe()
    node = subprocess.Popen(
        [
            *(sys.executable, "-m", "mooncake_cli", "store", "--capacity=1MiB"),
            *(f"--ready-fd={writing}", "--master=127.0.0.1:1", f"--parent={os.getpid()}"),
        ],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as stream:
        assert "transfer" in json.loads(stream.readline())
    node.terminate()
    assert node.wait(timeout=20) == 0
