"""Every path to a running engine is tried, and none of them hangs."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mooncake_core.config import TransferConfig
from mooncake_core.errors import PeerUnreachable, TransferTimeout, WireError
from mooncake_core.topology import Host, Nic, read_host
from mooncake_core.topology.check import check_paths, rounds
from mooncake_core.topology.verdicts import usable_nics
from mooncake_core.transfer import TransferEngine

LOOPBACK = Host(nics=(Nic(name="lo", kind="loopback", addresses=("127.0.0.1/8", "::1/128")),))


@contextmanager
def engine(listen: str, *addresses: str) -> Iterator[str]:
    config = TransferConfig(listen=listen, protocol="tcp", addresses=addresses)
    running = TransferEngine(config)
    try:
        yield running.endpoint
    finally:
        running.close()


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Something that is no engine: it says `answer`, or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    if answer is not None:
                        connection.sendall(answer)
            except OSError:
                return

        held: list[socket.socket] = []
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


@pytest.mark.parametrize(("listen", "local"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")])
def test_a_path_that_works_is_measured(listen: str, local: str) -> None:
    with engine(listen) as endpoint:
        (path,) = check_paths(LOOPBACK, endpoint)
    assert (path.local, path.remote, path.error) == (local, endpoint, "")
    assert path.connect_s and path.latency_s and path.rate_bytes_per_s
    assert path.latency_s < path.connect_s < 2 and path.rate_bytes_per_s > 1e6


def test_every_local_address_is_paired_with_the_peers() -> None:
    addresses = ("127.0.0.1/8", "127.0.0.2/8", "127.0.0.3/8")
    host = Host(nics=(Nic(name="lo", kind="loopback", addresses=addresses),))
    with engine("127.0.0.1:0") as endpoint:
        paths = check_paths(host, endpoint)
    assert [path.local for path in paths] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert all(path.remote == endpoint and not path.error for path in paths)


def test_a_local_address_that_is_gone_fails_alone() -> None:
    addresses = ("127.0.0.1/8", "203.0.113.7/24")
    host = Host(nics=(Nic(name="lo", kind="loopback", addresses=addresses),))
    with engine("127.0.0.1:0") as endpoint:
        good, gone = check_paths(host, endpoint)
    assert not good.error
    assert gone.error and "203.0.113.7" in gone.problem


def test_this_hosts_own_addresses_reach_an_engine_on_all_of_them() -> None:
    with engine("127.0.0.1:0") as endpoint:
        assert all(not path.error for path in check_paths(read_host(), endpoint) if path.local)


def test_further_addresses_of_the_peer_are_learned_from_it() -> None:
    host = read_host()
    found = [
        str(interface.ip)
        for nic in usable_nics(host)
        for interface in nic.interfaces()
        if not interface.ip.is_link_local
    ]
    if len(found) < 2:
        pytest.skip("this host has fewer than two addresses that lead somewhere")
    first, second, *_ = (f"[{each}]" if ":" in each else each for each in found)
    with engine(f"{first}:0", found[1]) as endpoint:
        paths = check_paths(host, endpoint)
    assert {path.remote.rpartition(":")[0] for path in paths} == {first, second}
    assert all(not path.error for path in paths)


def test_nobody_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(PeerUnreachable, match=r"no transfer engine answers at 127\.0.*refused"):
        check_paths(LOOPBACK, f"127.0.0.1:{port}", timeout_s=20)
    assert time.monotonic() - start < 10


def test_a_listener_that_says_nothing_is_a_timeout() -> None:
    with listener(None) as endpoint, pytest.raises(TransferTimeout):
        check_paths(LOOPBACK, endpoint, timeout_s=0.2)


def test_a_listener_that_says_something_else_is_a_wire_error() -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as endpoint, pytest.raises(WireError):
        check_paths(LOOPBACK, endpoint, timeout_s=5)


@pytest.mark.parametrize("endpoint", ["nonsense", "127.0.0.1", "127.0.0.1:99999", ""])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        check_paths(LOOPBACK, endpoint)


def test_in_a_round_no_address_takes_part_twice() -> None:
    pairs = [(local, remote) for remote in "xyz" for local in "abcd"]
    found = list(rounds(pairs))
    assert sorted(pair for one in found for pair in one) == sorted(pairs)
    assert len(found) <= 6
    for one in found:
        assert len({local for local, _ in one}) == len({remote for _, remote in one}) == len(one)
