"""Whom an engine reaches when it opens a segment, and by which address."""

from collections.abc import Callable, Iterator

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import PeerUnreachable, WrongPeer
from mooncake_core.transfer import TransferEngine
from tests.addresses import link_local
from tests.transfer.peer import Peer, numbers


@pytest.fixture
def user() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig(same_host="network"))
    yield engine
    engine.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "link-local"])
def test_every_form_of_an_address_is_listened_on_and_reached(
    user: TransferEngine, host: str
) -> None:
    host = f"[{link_local()}]" if host == "link-local" else host
    owner = TransferEngine(TransferConfig(listen=f"{host}:0"))
    assert owner.endpoint.startswith(f"{host}:")
    assert user.open_segment(owner.endpoint, owner.create_segment(100).id).size_bytes == 100
    owner.close()


@pytest.mark.parametrize("endpoint", ["0.0.0.0:7000", "[::]:7000"])
def test_an_address_of_every_interface_is_refused_with_a_hint(
    user: TransferEngine, endpoint: str
) -> None:
    with pytest.raises(ValueError, match="address of the interface"):
        user.open_segment(endpoint, 1)


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1", "::1", "127.0.0.1:", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused(user: TransferEngine, endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        user.open_segment(endpoint, 1)


def test_another_engine_than_the_one_asked_for_is_the_wrong_peer(
    engine: TransferEngine, peer: Peer
) -> None:
    endpoint, segment_id = peer.call("endpoint"), peer.call("create", 4096)
    for known in (False, True):
        with pytest.raises(WrongPeer):
            engine.open_segment(endpoint, segment_id, engine_id=peer.call("engine_id") ^ 1)
        if not known:
            engine.open_segment(endpoint, segment_id)
    engine.open_segment(endpoint, segment_id, engine_id=peer.call("engine_id"))


def test_a_peer_that_was_replaced_is_the_wrong_peer_only_for_those_who_ask_for_it(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    first = start_peer()
    endpoint, old_id = first.call("endpoint"), first.call("engine_id")
    engine.open_segment(endpoint, first.call("create", 4096), engine_id=old_id)
    first.kill()
    with pytest.raises(PeerUnreachable):
        engine.open_segment(endpoint, 1, engine_id=old_id)
    second = start_peer(endpoint)
    segment_id = second.call("create", 4096)
    with pytest.raises(WrongPeer):
        engine.open_segment(endpoint, segment_id, engine_id=old_id)
    for engine_id in (0, second.call("engine_id")):
        assert engine.open_segment(endpoint, segment_id, engine_id=engine_id).size_bytes == 4096


def test_a_priority_that_there_is_not_is_refused(engine: TransferEngine) -> None:
    own = engine.create_segment(4096)
    remote = engine.open_segment(engine.endpoint, own.id)
    batch = numbers(own.address), numbers(0), numbers(0)
    remote.read(*batch, priority="background")
    remote.submit_read(*batch, priority="background").wait(20)
    for call in (remote.read, remote.submit_write):
        with pytest.raises(ValueError, match='\'urgent\'; "foreground" or "background"'):
            call(*batch, priority="urgent")  # type: ignore[arg-type]
