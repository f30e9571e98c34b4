"""`mooncake store ls | rm | put | get` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooncake_cli.app import main
from mooncake_cli.commands import status
from mooncake_core.config import ConductorConfig, MasterConfig
from mooncake_core.store.patterns import remove_by_prefix
from tests.store.processes import Cluster

ODD = b"odd\xff\n\\key"
ODD_SHOWN = r"odd\xff\x0a\\key"


@pytest.fixture(scope="module")
def store() -> Iterator[Cluster]:
    cluster = Cluster("shm", nodes=1, capacity="16 MiB")
    yield cluster
    cluster.close()


@pytest.fixture(autouse=True)
def no_objects(store: Cluster) -> None:
    remove_by_prefix(store.client, b"")


def run(
    store: Cluster, *arguments: str | bytes, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-W", "error", "-m", "mooncake_cli", "store", *arguments]
    return subprocess.run(
        [*command, "--master", store.rpc],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )


def output(store: Cluster, *arguments: str | bytes, stdin: bytes = b"") -> str:
    done = run(store, *arguments, stdin=stdin)
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    return done.stdout.decode()


def test_a_file_is_put_and_got(store: Cluster, tmp_path: Path) -> None:
    (source := tmp_path / "source").write_bytes(content := os.urandom(3_000_000))
    assert output(store, "put", "file", str(source)) == ""
    assert run(store, "get", "file").stdout == content
    assert output(store, "get", "file", "-o", str(tmp_path / "target")) == ""
    assert (tmp_path / "target").read_bytes() == content
    assert output(store, "put", "pipe", "-", stdin=b"") == ""
    assert store.client.get("pipe") == b""


def test_a_key_that_is_there_is_replaced_only_when_asked(store: Cluster) -> None:
    output(store, "put", "once", "-", stdin=b"first")
    again = run(store, "put", "once", "-", stdin=b"second")
    assert again.returncode == 1
    assert again.stderr == b"mooncake: once: it is there already; --upsert replaces it\n"
    assert store.client.get("once") == b"first"
    output(store, "put", "once", "-", "--upsert", stdin=b"third")
    assert store.client.get("once") == b"third"


def test_a_miss_is_one_line_and_exit_code_1(store: Cluster, tmp_path: Path) -> None:
    target = tmp_path / "target"
    missed = run(store, "get", "nothing", "-o", str(target))
    assert (missed.returncode, missed.stdout) == (1, b"")
    assert missed.stderr == b"mooncake: nothing: there is no such object\n"
    assert not target.exists()


def test_keys_are_listed_by_prefix_and_expression(store: Cluster) -> None:
    store.client.batch_put(
        (f"{kind}/{number}", b"x" * number) for kind in "ab" for number in (1, 2)
    )
    assert sorted(output(store, "ls").split()) == ["a/1", "a/2", "b/1", "b/2"]
    assert sorted(output(store, "ls", "a/").split()) == ["a/1", "a/2"]
    assert sorted(output(store, "ls", "--regex", "/2$").split()) == ["a/2", "b/2"]
    assert output(store, "ls", "a", "--regex", "/2$") == "a/2\n"
    assert output(store, "ls", "c") == ""


def test_a_long_list_says_more(store: Cluster) -> None:
    store.client.put("key", bytes(12_345))
    store.client.pin(["key"])
    assert output(store, "ls", "--long").split() == ["12,345", "hard", "0", "node-0", "key"]
    listed = json.loads(output(store, "ls", "--json"))
    assert listed["key"] == "key" and listed["size_bytes"] == 12_345
    assert listed["copies"] == ["node-0"] and listed["pin"] == "hard"


def test_what_reads_a_list_may_stop_reading(store: Cluster) -> None:
    store.client.batch_put((f"{number:0100}", b"") for number in range(2000))
    command = f"{sys.executable} -W error -m mooncake_cli store ls --master {store.rpc} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60)
    assert len(done.stdout) == 101 and done.stderr == b""


@pytest.mark.parametrize("command", ["ls", "get key"])
def test_output_that_cannot_be_written_is_one_line(store: Cluster, command: str) -> None:
    store.client.put("key", bytes(100_000))
    line = f"{sys.executable} -m mooncake_cli store {command} --master {store.rpc} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == b"mooncake: stdout: No space left on device\n"


def test_objects_are_removed_and_counted(store: Cluster) -> None:
    store.client.batch_put((f"{kind}/{number}", b"") for kind in "abc" for number in range(10))
    assert output(store, "rm", "a/0", "a/1", "none") == "2\n"
    assert output(store, "rm", "--prefix", "a/") == "8\n"
    assert output(store, "rm", "--regex", "^b/[0-4]") == "5\n"
    assert output(store, "rm", "--prefix", "") == "15\n"
    assert store.stats().objects == 0


def test_odd_keys_are_shown_and_given_escaped(store: Cluster) -> None:
    output(store, "put", ODD_SHOWN, "-", stdin=b"odd")
    assert store.client.get(ODD) == b"odd"
    assert output(store, "ls", r"odd\xff") == f"{ODD_SHOWN}\n"
    assert json.loads(output(store, "ls", "--json"))["key"] == ODD_SHOWN
    assert run(store, "get", ODD_SHOWN).stdout == b"odd"
    assert run(store, "get", b"odd\xff\n\\\\key").stdout == b"odd"
    assert output(store, "ls", "--regex", r"^odd\udcff\n\\key$") == f"{ODD_SHOWN}\n"
    assert output(store, "rm", ODD_SHOWN) == "1\n"


def test_wrong_usage_is_said(store: Cluster) -> None:
    for arguments, code, problem in [
        (["rm"], 2, "one of KEYS, --prefix and --regex is needed"),
        (["rm", "a", "--prefix", "b"], 2, "one of KEYS"),
        (["rm", "--regex", "("], 2, "is no regular expression"),
        (["ls", "--regex", "("], 2, "is no regular expression"),
        (["put", "a", "/no/such/file"], 2, "No such file"),
        (["get", r"\q"], 2, "a backslash is written"),
        (["put", "x" * 70_000, "-"], 1, "70000 bytes"),
    ]:
        done = run(store, *arguments)
        assert done.returncode == code, arguments
        assert problem in done.stderr.decode() and b"Traceback" not in done.stderr
    assert store.stats().objects == 0


def test_a_master_that_is_not_there_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mooncake_cli", "store", "ls", "--master", "127.0.0.1:1"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"mooncake: ") and done.stderr.count(b"\n") == 1


def test_status_names_the_nodes_and_their_domains(store: Cluster) -> None:
    command = [sys.executable, "-m", "mooncake_cli", "status", "--master", store.admin]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    [line] = [line.split() for line in shown.splitlines() if "online" in line]
    assert line[:2] == ["node-0", "node-0"]


def test_status_without_an_address_asks_a_master_where_there_is_no_conductor(
    store: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "DEFAULT_CONDUCTOR", "127.0.0.1:1")
    monkeypatch.setattr(status, "DEFAULT_MASTER", store.admin)
    assert main(["status", "--json"]) == 0
    assert [node["name"] for node in json.loads(capsys.readouterr().out)["store"]["nodes"]]
    monkeypatch.setattr(status, "DEFAULT_MASTER", "127.0.0.1:2")
    assert main(["status"]) == 1
    line = capsys.readouterr().err
    assert "nor does a master at 127.0.0.1:2; name --conductor or --master" in line
    assert line.startswith("mooncake: 127.0.0.1:1: nobody answers")


def test_status_without_an_address_asks_the_addresses_of_the_defaults() -> None:
    defaults = ConductorConfig().listen, MasterConfig().admin
    assert defaults == (status.DEFAULT_CONDUCTOR, status.DEFAULT_MASTER)
