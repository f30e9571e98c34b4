"""The driver of the scripts in benchmarks/ against a real store."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.processes import Cluster

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """A process of benchmarks/store_driver.py."""

    def __init__(self, master: str) -> None:
        script = str(ROOT / "benchmarks" / "store_driver.py")
        self._process = subprocess.Popen(
            [sys.executable, script, "drive", "ours", master, "{}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._hear() == {}

    def ask(self, do: str, **order: Any) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _hear(self) -> dict[str, float]:
        assert self._process.stdout is not None
        answer: dict[str, float] = json.loads(
            self._process.stdout.readline().removeprefix("ANSWER ")
        )
        return answer


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster("shm", nodes=1, capacity="8 MiB")
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[Driver]:
    driver = Driver(cluster.rpc)
    yield driver
    driver.close()


@pytest.mark.parametrize("batch", [1, 16])
def test_rates_of_every_operation_are_measured(
    driver: Driver, cluster: Cluster, batch: int
) -> None:
    assert driver.ask("check", size=4096) == {}
    rates = driver.ask("round", size=4096, batch=batch, seconds=0.02, limit=1 << 20)
    assert rates["put"] > 0 and rates["get"] > 0
    assert driver.ask("exists", batch=batch, seconds=0.02)["exists"] > 0
    assert driver.ask("memcpy", size=4096, seconds=0.01)["memcpy"] > 0
    assert cluster.stats().objects == 0


def test_a_storm_of_ten_times_the_pool_is_stored(driver: Driver, cluster: Cluster) -> None:
    answer = driver.ask("storm", size=1 << 18, count=320, threads=2, keep=True)
    assert answer["failures"] == 0 and answer["put"] > 0
    assert 0 < answer["p50_s"] <= answer["p99_s"]
    assert cluster.stats().evictions > 200


def test_what_should_survive_is_compared_with_a_plain_lru(driver: Driver) -> None:
    answer = driver.ask("survive", size=1 << 18, pool=8 << 20, keys=128, accesses=600, seed=1)
    assert answer["failures"] == 0 and 0 < answer["hits"] <= 1
    assert answer["hits"] > 0.8 * answer["lru_hits"] and answer["survived"] > 0.5
