"""Baselines and patterns."""

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.native import Code, _native

KIB = 1 << 10
MASK = (1 << 64) - 1


@pytest.fixture
def peer() -> Iterator[_native.SocketPeer]:
    peer = _native.SocketPeer.create("127.0.0.1:0")
    yield peer
    peer.close()


def slow_pattern(seed: int, size: int) -> bytes:
    """Word by word, as the header says."""

    def word(index: int) -> int:
        mixed = (seed // 2 * 0x9E3779B97F4A7C15 + index) & MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
        return (mixed ^ mixed >> 31) ^ (MASK if seed % 2 else 0)

    return b"".join(struct.pack("<Q", word(index)) for index in range(size // 8 + 1))[:size]


@given(seed=st.integers(0, MASK), offset=st.integers(0, 40), size=st.integers(1, 60))
def test_a_pattern_is_the_same_wherever_one_starts(seed: int, offset: int, size: int) -> None:
    part = bytearray(size)
    _native.fill_pattern(part, seed, offset)
    assert part == slow_pattern(seed, offset + size)[offset:]
    assert _native.first_wrong_byte(part, seed, offset) == -1


@given(at=st.integers(0, 99), offset=st.integers(0, 9), mask=st.integers(1, 255))
def test_one_wrong_bit_is_found_where_it_is(at: int, offset: int, mask: int) -> None:
    part = bytearray(100)
    _native.fill_pattern(part, 7, offset)
    part[at] ^= mask
    assert _native.first_wrong_byte(part, 7, offset) == at


def test_paired_seeds_differ_in_every_byte() -> None:
    one, other = bytearray(4096), bytearray(4096)
    _native.fill_pattern(one, 12)
    _native.fill_pattern(other, 13)
    assert all(a == b ^ 0xFF for a, b in zip(one, other, strict=True))


def test_a_pattern_does_not_go_into_memory_that_is_read_only() -> None:
    with pytest.raises(_native.Error, match="read-only"):
        _native.fill_pattern(bytes(8), 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_memcpy_has_a_rate(threads: int) -> None:
    assert _native.memcpy_rate(threads, 4 * KIB, 64 * KIB, 0.01) > 1e8


@pytest.mark.parametrize("op", [_native.Op.kRead, _native.Op.kWrite])
@pytest.mark.parametrize("streams", [1, 3])
def test_sockets_have_a_rate(peer: _native.SocketPeer, op: _native.Op, streams: int) -> None:
    for _ in range(3):
        assert _native.socket_rate(peer.endpoint, op, streams, 64 * KIB, 256 * KIB, 0.01) > 1e7


def test_loads_that_make_no_sense_are_refused() -> None:
    for threads, block, span in [(0, 1, 1), (65, 1, 1), (1, 0, 0), (1, 3, 10), (1, 1, 1 << 31)]:
        with pytest.raises(_native.Error) as error:
            _native.memcpy_rate(threads, block, span, 0.01)
        assert error.value.args[0] == Code.kInvalidArgument


def test_a_peer_that_is_closed_serves_nobody(peer: _native.SocketPeer) -> None:
    peer.close()
    peer.close()
    with pytest.raises(_native.Error):
        _native.socket_rate(peer.endpoint, _native.Op.kWrite, 1, 4 * KIB, 4 * KIB, 0.01)


def test_a_stranger_is_shown_the_door(peer: _native.SocketPeer) -> None:
    host, port = peer.endpoint.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(b"\xff" * 32)
        assert stranger.recv(1) == b""
