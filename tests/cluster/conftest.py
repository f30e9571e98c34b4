"""Clusters that several tests share; tests that kill things start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster, run_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def cluster_of_dtype(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster that serves the default model in each element type."""
    with run_cluster(tmp_path_factory.mktemp("up"), "--dtype", request.param) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that serves the default model."""
    with run_cluster(tmp_path_factory.mktemp("up")) as cluster:
        yield cluster
