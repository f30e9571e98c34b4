"""Faults and soaks, through the command."""

import json
import subprocess
import sys
from typing import Any

import pytest

from mooncake_cli.app import main
from mooncake_core.te_bench.process import Usage
from mooncake_core.te_bench.report import Moment
from mooncake_core.te_bench.soak import what_grew


def measured(*arguments: str, code: int = 0) -> dict[str, Any]:
    answer = subprocess.run(
        [sys.executable, "-m", "mooncake_cli", "te-bench", "--loopback", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == code, answer.stderr + answer.stdout
    report: dict[str, Any] = json.loads(answer.stdout)
    return report


@pytest.mark.parametrize("fault", ["lane", "path"])
def test_a_broken_way_is_noticed_and_used_again_without_an_error(fault: str) -> None:
    report = measured(f"--fault={fault}", "--block=1MiB", "--repeats=1")
    (found,) = report["faults"]
    assert found["error"] == "" and found["calls"] > 5
    assert found["used_again_s"] < 5
    assert found["detected_s"] < 5
    assert report["rows"] == []


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_killed_peer_is_an_error_and_its_successor_is_used(transport: str) -> None:
    report = measured("--fault=peer", "--block=1MiB", f"--transport={transport}")
    (found,) = report["faults"]
    assert "PeerUnreachable" in found["error"]
    assert found["detected_s"] < 5 and found["used_again_s"] < 10


def test_a_soak_is_right_in_every_byte_and_flat() -> None:
    report = measured("--soak=3", "--transfer-addresses=127.0.0.2")
    assert list(report["choices"]) == ["tcp"]
    soak = report["soak"]
    assert soak["errors"] == [] and soak["grown"] == []
    assert soak["calls"] > 10 and soak["cuts"] > 0 and len(soak["moments"]) > 5


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--loopback", "--fault=lane", "--transport=shm"), "a lane is of tcp, not shm"),
        (("run", "127.0.0.1:1", "--fault=peer"), "must be --loopback's"),
        (("--loopback", "--fault=lain"), "'lain' is none of lane, path, peer"),
        (("--loopback", "--fault=lane", "--soak=1"), "not with soak"),
        (("--loopback", "--soak=1", "--prepared"), "of the sweep only"),
        (("--loopback", "--soak=1", "--model=phi-4"), "chooses its own sizes"),
        (("--loopback", "--soak=1", "--plot=x.png"), "draws the rows of a sweep"),
        (("--loopback", "--soak=1", "--transport=shm,tcp"), "take one, not shm,tcp"),
    ],
)
def test_a_fault_that_cannot_be_had_is_refused(
    arguments: tuple[str, ...], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["te-bench", *arguments]) == 2
    shown = capfd.readouterr()
    assert problem in shown.err and shown.out == ""


def moment(rss_mib: int = 100, fds: int = 20, time_wait: int = 0, cuts: int = 0) -> Moment:
    usage = Usage(cpu_s=1, rss_bytes=rss_mib << 20, fds=fds, sockets=8)
    return Moment(at_s=1, initiator=usage, target=usage, time_wait=time_wait, recent_cuts=cuts)


def test_what_goes_up_and_down_has_not_grown() -> None:
    assert what_grew(tuple(moment(rss_mib=100 + 10 * (at % 3)) for at in range(90))) == ()


def test_growth_before_the_first_third_is_warming_up() -> None:
    assert what_grew((moment(rss_mib=10),) * 5 + (moment(rss_mib=200),) * 10) == ()


def test_what_keeps_growing_is_named() -> None:
    grown = what_grew(tuple(moment(rss_mib=100 + at, fds=20 + at) for at in range(90)))
    assert [what.split(":")[0] for what in grown] == [
        *("initiator.rss_bytes", "initiator.fds", "target.rss_bytes", "target.fds")
    ]


def test_sockets_that_wait_are_held_against_the_cuts() -> None:
    assert what_grew((moment(time_wait=200, cuts=100),) * 6) == ()
    assert what_grew((moment(time_wait=200, cuts=10),) * 6) == ("time_wait: 200 after 10 cuts",)
