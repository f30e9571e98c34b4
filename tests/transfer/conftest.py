"""Engines here and in other processes, for each transport."""

from collections.abc import Callable, Iterator

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.transfer import TransferEngine
from tests.transfer.peer import Peer

SAME_HOST = {"shm": "shm", "lent": "shm", "tcp": "network", "paths": "network"}
FURTHER = {"paths": ("127.0.0.2",)}
"""Addresses of both sides, besides 127.0.0.1."""


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(transport: str) -> Iterator[TransferEngine]:
    config = TransferConfig(
        same_host=SAME_HOST[transport],  # type: ignore[arg-type]
        addresses=FURTHER.get(transport, ()),
    )
    engine = TransferEngine(config)
    yield engine
    engine.close()


@pytest.fixture
def start_peer(transport: str) -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def start(listen: str = "127.0.0.1:0", same_host: str = SAME_HOST[transport]) -> Peer:
        peers.append(Peer(same_host, listen, FURTHER.get(transport, ())))
        return peers[-1]

    yield start
    for peer in peers:
        peer.end()


@pytest.fixture
def peer(start_peer: Callable[..., Peer]) -> Peer:
    return start_peer()
