"""`mooncake te-bench` as a user meets it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooncake_cli.app import main
from tests.te_bench.results import report, result, sample

QUICK = (
    *("--seconds=0.02", "--warm-up-s=0", "--repeats=2", "--memory=1MiB"),
    *("--block=4KiB,64KiB", "--batch=4"),
)
Run = subprocess.CompletedProcess[str]


def te_bench(*arguments: str) -> Run:
    return subprocess.run(
        [sys.executable, "-m", "mooncake_cli", "te-bench", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mooncake_cli", "te-bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def measured(*arguments: str) -> dict[str, Any]:
    answer = te_bench(*arguments, "--json")
    assert answer.returncode == 0, answer.stderr
    report: dict[str, Any] = json.loads(answer.stdout)
    return report


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process = start("target", "--json")
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["address"]
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


def test_loopback_measures_both_transports_beside_their_baselines() -> None:
    report = measured("--loopback", "--transport=shm,tcp", "--direction=read,both", *QUICK)
    rows = report["rows"]
    assert len(rows) == 8 and report["is_complete"] and report["is_same_host"]
    for row in rows:
        assert row["transport"] == row["case"]["transport"]
        assert row["gb_per_s"] > 0 and row["of_baseline"] > 0 and len(row["samples"]) == 2
    assert {row["baseline"].split()[0] for row in rows} == {"memcpy", "plain"}
    assert report["choices"]["shm"] == "shm: the peer is on this host and shares the memory"
    assert report["initiator"]["topology"] == report["target"]["topology"]
    assert report["config"]["block"] == "4KiB,64KiB"


def test_people_are_told_the_same() -> None:
    answer = te_bench("--loopback", "--no-baseline", "--prepared", "--direction=write", *QUICK)
    assert answer.returncode == 0, answer.stderr
    assert "write 4 KiB x 4 x 1" in answer.stdout and "GB are 10^9 bytes" in answer.stdout
    assert "auto: shm: the peer is on this host" in answer.stdout


def test_another_process_is_measured_by_its_address(address: str) -> None:
    report = measured("run", address, "--transport=tcp", "--direction=write", *QUICK)
    assert [row["transport"] for row in report["rows"]] == ["tcp", "tcp"]
    assert report["choices"]["tcp"] == "tcp: the peer is on this host, and same_host is network"


def test_progress_is_told_where_it_is_asked_for(address: str) -> None:
    answer = te_bench("run", address, "--progress", "--direction=read", *QUICK)
    assert "auto read 64 KiB x 4 x 1: 2 of 2" in answer.stderr


def test_a_model_says_what_blocks_are_and_what_bandwidth_pays() -> None:
    preset = ("--model=smollm2-135m-instruct", "--tokens=1000", "--gpu=1xh20")
    report = measured("--loopback", *preset, "--seconds=0.02", "--repeats=1", "--memory=1MiB")
    kv = report["kv"]
    assert (kv["block_bytes"], kv["batch"], kv["tokens"]) == (196_608, 3, 768)
    assert report["rows"][0]["case"]["block_bytes"] == kv["block_bytes"]
    answer = te_bench("--loopback", *preset, "--seconds=0.02", "--repeats=1", "--memory=1MiB")
    assert "reuse pays: " in answer.stdout or "reuse does not pay: " in answer.stdout


def test_addresses_that_shared_memory_does_not_use_are_told() -> None:
    answer = te_bench("--loopback", "--transfer-addresses=127.0.0.2", "--no-baseline", *QUICK)
    assert "--transfer-addresses: not used over shm" in answer.stderr


def test_a_target_that_is_killed_is_gone() -> None:
    target = start("target", "--json")
    assert target.stdout is not None
    address = json.loads(target.stdout.readline())["address"]
    run = start("run", address, "--progress", "--transport=tcp", "--repeats=1000", "--seconds=0.02")
    assert run.stderr is not None
    while "3 of 1000" not in run.stderr.readline():
        assert run.poll() is None
    target.kill()
    target.communicate()
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 1 and f"mooncake: the target at {address} is gone" in errors


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "rates.png"
    answer = te_bench("--loopback", "--plot", str(file), *QUICK)
    assert answer.returncode == 0, answer.stderr
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_regression_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = measured("--loopback", "--direction=read", "--no-baseline", *QUICK)
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    report["rows"][0]["spread"] = 0.0
    before.write_text(json.dumps(report))
    report["rows"][0]["gb_per_s"] *= 0.9
    report["rows"][0]["spread"] = 0.0
    after.write_text(json.dumps(report))
    assert main(["te-bench", "compare", str(before), str(before)]) == 0
    assert main(["te-bench", "compare", str(before), str(after), "--threshold=5%"]) == 1
    assert "1 of 2 rows are slower by more than 5.0% and by more than ±" in capsys.readouterr().out
    assert main(["te-bench", "compare", str(before), str(after), "--threshold=0.2"]) == 0


def test_results_without_a_common_row_are_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, size in zip(files, (4096, 8192), strict=True):
        kept = report(result(sample(1e9), block_bytes=size))
        file.write_bytes(msgspec.json.encode(kept))
    assert main(["te-bench", "compare", *map(str, files)]) == 1
    told = capsys.readouterr().err
    assert "no row in common" in told and "only in A: tcp read 4 KiB x 16 x 1" in told


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_prints_what_there_is_and_ends_the_target(
    number: signal.Signals, code: int
) -> None:
    process = start(
        *("--loopback", "--progress", "--json", "--block=4KiB", "--no-baseline"),
        *("--direction=read", "--seconds=0.02", "--repeats=1000", "--memory=1MiB"),
    )
    assert process.stderr is not None
    while "3 of 1000" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    report = json.loads(output)
    assert not report["is_complete"] and len(report["rows"]) == 1
    assert len(report["rows"][0]["samples"]) >= 2 and "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "127.0.0.1:1"), "127.0.0.1:1: no target answers"),
        (("run", f"{'a' * 100}:80"), "no target answers"),
        (("--loopback", "--block=512 MiB", "--batch=4096"), "are available; take less memory"),
        (("--loopback", "--memory=10 TiB"), "take less memory"),
        (("--loopback", "--transfer-listen=203.0.113.9:0"), "--transfer-listen: listen on 203."),
        (("--loopback", "--transfer-protocol=rdma"), "--transfer-protocol: rdma cannot be used"),
        (("--loopback", "--model=lama-3.1-70b"), "did you mean 'llama-3.1-70b'?"),
        (("--loopback", "--plot=/nowhere/rates.png"), "/nowhere is no folder"),
        (("compare", "/a.json", "/b.json"), "/a.json: cannot read it"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_1(
    arguments: tuple[str, ...], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_is_refused(arguments, 1, problem, capfd)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "nonsense"), "'nonsense' is not host:port"),
        (("--loopback", "--block=9 QiB"), "--block: '9 QiB': unknown unit"),
        (("--loopback", "--seconds=0"), "--seconds: Expected `float` > 0"),
        (("--loopback", "--threads=65"), "'65' is no whole number from 1 to 64"),
        (("--loopback", "--tokens=2000000", "--model=phi-4"), "--tokens: Expected `int` <="),
        (("--loopback", "--model=phi-4", "--gpu=h80"), "did you mean 'h800'?"),
        (("--loopback", "--model=phi-4", "--batch=2"), "says what block and batch are"),
        (("--loopback", "--gpu=h20"), "--gpu: only with model, and would be ignored"),
        (("--loopback", "--tokens=512"), "--tokens: only with model"),
        (("--loopback", "--seed=7"), "--seed: only with soak"),
        (("compare", "/a.json", "/b.json", "--threshold=x"), "'x' is no share"),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    arguments: tuple[str, ...], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_is_refused(arguments, 2, problem, capfd)


def assert_is_refused(
    arguments: tuple[str, ...], code: int, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever processes that were started write besides."""
    assert main(["te-bench", *arguments]) == code
    shown = capfd.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("mooncake: ") and problem in line and shown.out == ""


def test_a_target_that_cannot_listen_is_one_line_and_1() -> None:
    answer = te_bench("target", "--listen=256.0.0.1:0")
    assert answer.returncode == 1 and answer.stdout == ""
    assert (
        "--listen: listen on 256.0.0.1:0: " in answer.stderr
        and len(answer.stderr.splitlines()) == 1
    )


def test_without_a_target_usage_is_told() -> None:
    answer = te_bench()
    assert answer.returncode == 2 and "--loopback" in answer.stderr
