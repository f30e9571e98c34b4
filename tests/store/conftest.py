"""A store of real processes on loopback, on both transports."""

from __future__ import annotations

import pytest

from tests.store.fire.stage import Stage
from tests.store.processes import Cluster


@pytest.fixture(params=["shm", "network"])
def cluster(request):
    cluster = Cluster(request.param)
    yield cluster
    cluster.close()


@pytest.fixture
def network_cluster():
    """One whose payload crosses TCP, for what cannot happen to mapped memory."""
    cluster = Cluster("network")
    yield cluster
    cluster.close()


@pytest.fixture(scope="module", params=["shm", "network"])
def quiet_cluster(request):
    """One that is shared by tests that break nothing; each uses keys of its own."""
    cluster = Cluster(request.param, capacity="64 MiB")
    yield cluster
    cluster.close()


@pytest.fixture(params=["shm", "network"])
def stage(request):
    """One node, and clients that are stopped in the middle of what they do."""
    stage = Stage(request.param)
    yield stage
    stage.close()
