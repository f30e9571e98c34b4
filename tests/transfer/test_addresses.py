"""Engines on every kind of address, and addresses that are of no use to peers."""

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError, PeerUnreachable
from mooncake_core.transfer import TransferEngine
from tests.addresses import link_local
from tests.transfer.peer import numbers


def assert_it_is_reached(host: str) -> None:
    owner = TransferEngine(TransferConfig(listen=f"{host}:0", same_host="network"))
    user = TransferEngine(TransferConfig(listen=f"{host}:0", same_host="network"))
    assert owner.endpoint.startswith(f"{host}:")
    segment = owner.create_segment(4096)
    remote = user.open_segment(owner.endpoint, segment.id)
    with user.register(bytearray(b"hello")) as buffer:
        remote.write(numbers(buffer.address), numbers(1), numbers(5))
    assert bytes(segment.buffer[:7]) == b"\0hello\0"
    user.close()
    owner.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "[::1]", "[0:0:0:0::1]"])
def test_an_address_is_reached_as_it_is_told(host: str) -> None:
    assert_it_is_reached(host)


def test_a_link_local_address_is_reached_through_its_interface() -> None:
    assert_it_is_reached(f"[{link_local()}]")


@pytest.mark.parametrize("endpoint", ["::1:80", "[::1:80", "[::1]", "127.0.0.1", "[]:80", ":80"])
def test_what_is_no_endpoint_is_refused_with_the_right_form(endpoint: str) -> None:
    engine = TransferEngine(TransferConfig())
    with pytest.raises(ValueError, match=r"host:port or \[v6\]:port"):
        engine.open_segment(endpoint, 1)
    engine.close()


def test_a_name_that_is_none_is_unreachable_at_once() -> None:
    engine = TransferEngine(TransferConfig())
    with pytest.raises(PeerUnreachable, match=r"nowhere\.invalid"):
        engine.open_segment("nowhere.invalid:80", 1, timeout_s=20)
    engine.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_engine_that_would_tell_peers_a_wildcard_is_refused(host: str) -> None:
    with pytest.raises((ConfigError, ValueError), match="the address of the interface"):
        TransferEngine(TransferConfig(listen=f"{host}:0"))


def test_more_addresses_than_possible_are_refused_by_their_key() -> None:
    many = tuple(f"127.0.1.{host}" for host in range(1, 66))
    with pytest.raises(ConfigError, match=r"transfer\.addresses: 65 addresses; fewer than 64"):
        TransferEngine(TransferConfig(addresses=many))
