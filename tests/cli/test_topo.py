"""`mooncake topo` on recorded hosts."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mooncake_cli.app import main
from mooncake_core.config import TransferConfig
from mooncake_core.te_bench.target import Target
from mooncake_core.transfer import TransferEngine
from tests.topology.trees import V2, Recorded


class Quiet(BaseHTTPRequestHandler):
    """Answers, and logs nothing."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """Two RDMA cards, one of them down; return the --sysroot flag."""
    host = Recorded(tmp_path)
    for index in range(2):
        card = host.card(f"eth{index}", f"10.{index}.0.2/24")
        gids = {1: (f"10.{index}.0.2", V2, f"eth{index}"), 3: ("10.7.0.2", V2, "")}
        state = {"state": "4: ACTIVE" if index == 0 else "1: DOWN"}
        host.port(f"mlx5_{index}", gids, at=card, files=state)
    host.gpu("pci0000:00/0000:09:00.0")
    host.read()
    return f"--sysroot={tmp_path}"


def test_tables_have_every_device_with_its_verdict(
    recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topo", recorded]) == 0
    shown = capsys.readouterr()
    for word in ("mlx5_1/1", "its state is DOWN", "loopback", "10.0.0.0/24", "cuda:0", "PHB"):
        assert word in shown.out
    assert shown.err == ""


def test_json_has_everything(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["topo", recorded, "--json", "--master=10.0.0.9:7400", "--gid=mlx5_0=3"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    verdicts = {each["name"]: each for each in answer["verdicts"]}
    assert verdicts["mlx5_0/1"]["is_usable"] and verdicts["mlx5_1/1"]["code"] == "down"
    assert [gid["index"] for gid in answer["gids"]["mlx5_0/1"]] == [3, 1]
    assert answer["matrix"] == {"cpu:0": [["mlx5_0"], []], "cuda:0": [["mlx5_0"], []]}
    assert answer["distances"]["cuda:0"] == {"mlx5_0": "PHB"}
    assert answer["advertised"]["address"] == "10.0.0.2"
    assert answer["rails"] and answer["limits"] and answer["rdma_reasons"] == []
    assert "warning: mlx5_0/1: GID 3 is used as told" in shown.err


def test_the_matrix_alone_is_json_that_can_be_used(
    recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topo", recorded, "--exclude=mlx5*", "--matrix"]) == 0
    text = capsys.readouterr().out
    both = [["eth0", "eth1"], []]
    assert json.loads(text) == {"cpu:0": both, "cuda:0": both}
    (file := tmp_path / "matrix.json").write_text(text)
    assert main(["topo", recorded, f"--use={file}"]) == 0
    assert f"of {file} are used" in capsys.readouterr().out
    assert main(["topo", recorded, f"--use={file}", "--matrix"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(text)


@pytest.mark.parametrize(
    ("wanted", "code"), [("rdma", 0), ("rdma:1", 0), ("1", 0), ("2", 3), ("rdma:2", 3)]
)
def test_a_requirement_that_is_not_met_ends_with_3_and_reasons(
    recorded: str, wanted: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topo", recorded, f"--require={wanted}"]) == code
    shown = capsys.readouterr()
    assert "mlx5_0/1" in shown.out
    assert ("not met: mlx5_1/1: down: its state is DOWN" in shown.err) == (code == 3)


def test_what_does_not_exist_is_said(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, code, problem in (
        ("--only=mlx_0", 1, "--only: mlx_0: no device fits; did you mean 'mlx5_0'"),
        ("--gid=mlx5_0=9", 1, "GID 9 is not set"),
        ("--use=/nowhere.json", 1, "/nowhere.json: cannot read it"),
        ("--peer=there", 2, "'there' is no address"),
        ("--gid=mlx5_0", 2, "not device=index"),
        ("--require=roce", 2, "--require: roce: write rdma"),
        ("--master=0.0.0.0:7400", 1, "names no master"),
    ):
        assert main(["topo", recorded, flag]) == code
        assert problem in capsys.readouterr().err


def test_every_path_to_an_engine_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    engine = TransferEngine(TransferConfig(protocol="tcp"))
    try:
        assert main(["topo", f"--check={engine.endpoint}", "--json"]) == 0
        (path,) = json.loads(capsys.readouterr().out)["paths"]
        assert main(["topo", f"--check={engine.endpoint}"]) == 0
        assert f"127.0.0.1  {engine.endpoint}  ok" in capsys.readouterr().out
    finally:
        engine.close()
    assert path["error"] == "" and path["rate_bytes_per_s"] > 0


def test_where_no_engine_answers_ends_with_3_and_says_who_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    web = HTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=web.serve_forever, args=(0.05,))
    thread.start()
    silent = socket.create_server(("127.0.0.1", 0))
    target = Target("127.0.0.1:0", TransferConfig(protocol="tcp"))
    try:
        for address, problem in {
            "127.0.0.1:1": "no transfer engine answers at 127.0.0.1:1: ",
            f"127.0.0.1:{web.server_port}": "is no transfer engine: it answered HTTP",
            f"127.0.0.1:{silent.getsockname()[1]}": "did not answer within 2 s",
            target.address: "is no transfer engine: it is a te-bench target's control address",
        }.items():
            assert main(["topo", f"--check={address}"]) == 3
            shown = capsys.readouterr().err
            assert problem in shown and address in shown
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
        silent.close()
        target.close()


def test_a_check_that_cannot_be_made_is_one_line(
    recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, problem in {
        ("--check=nonsense",): "--check: nonsense: ",
        ("--check=127.0.0.1:1", recorded): "a recorded copy reaches nobody",
    }.items():
        assert main(["topo", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert problem in line
