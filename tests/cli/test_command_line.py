"""The command as a user meets it, each time in a process of its own."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mooncake_cli.app import SUMMARIES
from mooncake_cli.reference import reference

DOCS = Path(__file__).parents[2] / "docs" / "CLI.md"
HEAVY = {"torch", "numpy", "aiohttp", "mooncake_core._native", "mooncake_core.native"}
Run = subprocess.CompletedProcess[str]


def mooncake(*arguments: str, timeout_s: float = 30) -> Run:
    return subprocess.run(
        [sys.executable, "-m", "mooncake_cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def loaded_by(*arguments: str) -> set[str]:
    """Return what one run of the command has imported at its end."""
    script = (
        "import sys; from mooncake_cli.app import main; "
        f"code = main({list(arguments)!r}); print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    return set(run.stderr.split())


def test_help_lists_every_command_with_its_whole_summary() -> None:
    answer = mooncake("--help")
    assert answer.returncode == 0 and answer.stderr == ""
    for name, summary in SUMMARIES.items():
        assert any(name in line and summary in line for line in answer.stdout.splitlines())


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_command_has_help_that_opens_with_its_summary(name: str) -> None:
    answer = mooncake(name, "--help")
    assert answer.returncode == 0 and answer.stderr == ""
    assert SUMMARIES[name] in " ".join(answer.stdout.split())


@pytest.mark.parametrize("arguments", [("--help",), ("up", "--help"), ("prefill", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)
    assert "typer" in loaded and not loaded & HEAVY


def test_help_loads_no_command() -> None:
    assert not [name for name in loaded_by("--help") if name.startswith("mooncake_cli.commands.")]


def test_importing_the_library_loads_nothing_heavy() -> None:
    script = "import sys, mooncake_core, mooncake_core.config; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & HEAVY


def test_help_costs_at_most_half_as_much_again_as_its_libraries() -> None:
    def measure(command: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    pairs = [
        (measure(["-c", "import typer, rich"]), measure(["-m", "mooncake_cli", "--help"]))
        for _ in range(7)
    ]
    base_s, help_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    assert help_s <= 1.5 * base_s, f"{help_s:.3f} s, {base_s:.3f} s"


def test_the_version_is_told() -> None:
    assert mooncake("--version").stdout.startswith("mooncake ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("store", "--no-such-flag"),
        ("kvsize",),
        ("up", "--port=-1"),
        ("store", "tasks", "--cancel=-1"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    answer = mooncake(*arguments)
    assert answer.returncode == 2 and "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("master", "--config=/nowhere.toml"), "/nowhere.toml: cannot read it"),
        (("kvsize", "no-such-model"), "neither a file, a folder nor a built-in name"),
        (("status", "--conductor=127.0.0.1:1"), "127.0.0.1:1: nobody answers: Connection refused"),
        (
            ("store", "--capacity=2 TiB"),
            "--capacity: 2 TiB: a segment of 2199023255552 bytes (2097152 MiB): ",
        ),
        (("master", "--listen=203.0.113.9:0"), "has it: there is "),
    ],
)
def test_what_cannot_be_done_is_one_line_and_1(arguments: tuple[str, ...], problem: str) -> None:
    assert_is_refused(mooncake(*arguments), 1, problem)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("store", "--capacity=-5"), "--capacity: '-5' is not a size"),
        (("store", "--capacity=1 kB"), "--capacity: '1 kB' is 1000 bytes; at least 1048576"),
        (("master", "--listen=7400"), "--listen: '7400' is not host:port"),
        (("prefill", "--pool-tokens=2"), "--pool-tokens: Expected `int` >= 256; got 2"),
        (("up", "--dtype=int8"), "--model-dtype: 'int8' is none of"),
        (("kvsize", "phi-4", "--dtype=fp8"), "'fp8' is none of float32"),
        (("topo", "--sysroot=/nowhere"), "/nowhere is no folder"),
        (("topo", "--require=all"), "--require: all: write rdma, rdma:N or N"),
        (("config", "show", "stroe"), "did you mean 'store'?"),
        (("status", "--master=nonsense"), "'nonsense' is not host:port"),
        (("status", "--conductor=http://127.0.0.1:1"), "'http://127.0.0.1:1' is not host:port"),
        (("store", "ls", "--master=nonsense"), "--master: 'nonsense' is not host:port"),
        (("store", "tasks", "--master=7400"), "--master: '7400' is not host:port"),
        (("status", "--master=127.0.0.1:99999"), "'127.0.0.1:99999' is not host:port"),
        (("store", "get", "a\\q"), "a backslash is written"),
        (("store", "bench", "--op=take"), "--op: 'take' is none of put"),
        (("store", "bench", "--size=5 x"), "--size: '5 x': unknown unit"),
        (("te-bench", "--loopback", "--block=9 QiB"), "--block: '9 QiB': unknown unit"),
    ],
)
def test_wrong_usage_is_one_line_and_2(arguments: tuple[str, ...], problem: str) -> None:
    assert_is_refused(mooncake(*arguments), 2, problem)


def assert_is_refused(answer: Run, code: int, problem: str) -> None:
    assert answer.returncode == code and answer.stdout == ""
    (line,) = [line for line in answer.stderr.splitlines() if " INFO " not in line]
    assert line.startswith("mooncake: ") and problem in line


def test_what_a_file_asks_for_in_vain_is_told_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text('capacity = "2 TiB"\ntransfer.listen = "127.0.0.1:0"\n')
    assert_is_refused(mooncake("store", "--config", str(path)), 1, f"{path}:capacity: 2 TiB: a ")
    prefill = tmp_path / "prefill.toml"
    prefill.write_text("block_tokens = 100\n")
    answer = mooncake("prefill", "--config", str(prefill))
    assert_is_refused(answer, 1, f"{prefill}:block_tokens: 100 is no multiple of")
    path.write_text('transfer.listen = "203.0.113.9:0"\n')
    assert_is_refused(mooncake("store", "--config", str(path)), 1, f"{path}:transfer.listen: ")


def test_a_broken_file_is_told_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "master.toml"
    path.write_text("lease = 5\n")
    answer = mooncake("config", "check", str(path))
    assert answer.returncode == 1
    assert answer.stderr == f"mooncake: {path}:lease: unknown key; did you mean 'lease_s'?\n"
    path.write_text("lease_s = 5\n")
    answer = mooncake("config", "check", str(path))
    assert answer.returncode == 0 and answer.stdout == f"{path}: good (master)\n"


def test_config_show_says_where_each_value_is_from(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text('capacity = "2 GiB"\n')
    shown = json.loads(mooncake("config", "show", "--config", str(path), "--json").stdout)
    assert shown["store"]["capacity"] == {"value": "2 GiB", "origin": str(path)}
    assert shown["store"]["master"] == {"value": "127.0.0.1:7400", "origin": "default"}
    assert "2 GiB" in mooncake("config", "show", "--config", str(path)).stdout


def test_kvsize_writes_gb_and_gib() -> None:
    text = mooncake("kvsize", "llama-3.1-70b", "--tokens", "128000").stdout
    assert "327,680 bytes per token" in text and "41.943 GB" in text and "39.062 GiB" in text
    answer = json.loads(mooncake("kvsize", "llama-3.1-70b", "--tokens=128000", "--json").stdout)
    assert answer["totals"] == [{"tokens": 128_000, "bytes": 41_943_040_000}]


ANSWERS: dict[str, Callable[[object], bool]] = {
    "topo": lambda answer: isinstance(answer, dict) and "nics" in answer,
    "doctor": lambda answer: isinstance(answer, list) and len(answer) > 10,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_tool_answers_people_and_programs(name: str) -> None:
    assert mooncake(name).stdout.strip()
    assert ANSWERS[name](json.loads(mooncake(name, "--json").stdout))


def test_doctor_names_every_optional_part_and_what_brings_it() -> None:
    parts = {part["name"]: part for part in json.loads(mooncake("doctor", "--json").stdout)}
    assert {
        *("native library", "RDMA", "io_uring", "libfabric", "CUDA driver", "NVML", "etcd"),
        *("torch", "transformers", "tokenizers", "built-in model", "/dev/shm", "memlock limit"),
        *("memfd", "pidfd"),
    } <= set(parts)
    assert "not used by this version" in parts["RDMA"]["use"]
    assert parts["torch"]["is_found"] or "pip install" in parts["torch"]["bring"]


def test_the_reference_is_what_the_commands_say() -> None:
    assert DOCS.read_text() == reference(), "python -m mooncake_cli.reference > docs/CLI.md"
