"""What the API says of arguments that it cannot take."""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError, PeerUnreachable, TransferError
from mooncake_core.transfer import RemoteSegment, Segment, TransferEngine
from tests.transfer.peer import Peer, numbers


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine(TransferConfig())
    yield engine
    engine.close()


@pytest.fixture
def own(engine: TransferEngine) -> Segment:
    return engine.create_segment(4096, name="own")


@pytest.fixture
def remote(engine: TransferEngine, own: Segment) -> RemoteSegment:
    return engine.open_segment(engine.endpoint, "own")


BAD = [
    ([4096], "addresses is a list"),
    (np.array([4096]), "addresses is a ndarray of shape (1,) and format 'l'"),
    (np.array([[1], [2]], np.uint64)[:, :1], "of shape (2, 1)"),
    (array.array("I", [4096]), "addresses is a array of shape (1,) and format 'I'"),
    (np.arange(4, dtype=np.uint64)[::2], "of shape (2,)"),
    (4096, "addresses is a int"),
]


@pytest.mark.parametrize(("bad", "said"), BAD, ids=[said for _, said in BAD])
@pytest.mark.parametrize(
    "call", ["read", "write", "submit_read", "submit_write", "prepare_read", "prepare_write"]
)
def test_an_array_of_another_type_is_named_with_what_is_right(
    remote: RemoteSegment, call: str, bad: Any, said: str
) -> None:
    with pytest.raises(TypeError) as raised:
        getattr(remote, call)(bad, numbers(0), numbers(1))
    assert said in str(raised.value)
    assert 'uint64 is needed, such as array.array("Q", [...])' in str(raised.value)


def test_offsets_lengths_and_notifications_are_named_too(
    remote: RemoteSegment, own: Segment
) -> None:
    one = numbers(own.address)
    with pytest.raises(TypeError, match="offsets is a list"):
        remote.read(one, [0], numbers(1))
    with pytest.raises(TypeError, match="lengths is a tuple"):
        remote.read(one, numbers(0), (1,))
    with pytest.raises(TypeError, match="notify is a str; bytes are needed"):
        remote.read(one, numbers(0), numbers(1), notify="text")  # type: ignore[arg-type]
    remote.read(one, np.array([0], np.uint64), numbers(1), notify=b"bytes")


def test_what_is_no_memory_is_refused_with_what_would_be(engine: TransferEngine) -> None:
    with pytest.raises(TypeError, match="a list cannot be registered: an array, a tensor"):
        engine.register([1, 2])
    with pytest.raises(BufferError, match="a contiguous one is needed"):
        engine.register(np.arange(8)[::2])
    with pytest.raises(TypeError, match="its id, a number, or its name"):
        engine.open_segment(engine.endpoint, b"own")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"same_host": "tcp"}, "TransferConfig.same_host: 'tcp' is none of shm, network"),
        ({"timeout_s": -1.0}, "TransferConfig.timeout_s: Expected `float` > 0"),
        ({"io_threads": 0}, "TransferConfig.io_threads: Expected `int` >= 1"),
        ({"slice_bytes": "1 MiB"}, "TransferConfig.slice_bytes: Expected `int`"),
    ],
)
def test_a_configuration_made_in_python_is_checked(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TransferEngine(TransferConfig(**values))
    assert said in str(raised.value)


def test_one_text_is_not_taken_for_a_list_of_addresses() -> None:
    with pytest.raises(ValueError, match=r"addresses: '127.0.0.2' is one text; a list is needed"):
        TransferConfig(addresses="127.0.0.2")  # type: ignore[arg-type]


@pytest.mark.parametrize("same_host", ["shm", "network"])
def test_an_error_names_the_peer_once(same_host: str) -> None:
    peer = Peer(same_host)
    endpoint = peer.call("endpoint")
    engine = TransferEngine(TransferConfig(same_host=same_host))  # type: ignore[arg-type]
    remote = engine.open_segment(endpoint, peer.call("create", 4096))
    own = engine.create_segment(4096)
    peer.kill()
    with pytest.raises(PeerUnreachable) as raised:
        while True:  # until the kernel has told
            remote.read(numbers(own.address), numbers(0), numbers(8))
    assert str(raised.value).count(endpoint) == 1
    with pytest.raises(PeerUnreachable) as raised:
        engine.open_segment(endpoint, 1)
    assert str(raised.value).count(endpoint) == 1
    engine.close()
    peer.end()


def test_objects_say_what_they_are(
    engine: TransferEngine, own: Segment, remote: RemoteSegment
) -> None:
    assert repr(engine) == f"<TransferEngine at {engine.endpoint}>"
    assert repr(own) == f"<Segment {own.id} 'own' of 4096 bytes>"
    assert repr(remote) == f"<RemoteSegment {own.id} at {engine.endpoint} over shm>"
    with engine.register(bytearray(10)) as buffer:
        assert repr(buffer) == f"<Buffer of 10 bytes at {buffer.address:#x}>"


@pytest.mark.parametrize("same_host", ["shm", "network"])
def test_a_write_that_the_owner_refuses_is_not_dirty(same_host: str) -> None:
    config = TransferConfig(same_host=same_host)  # type: ignore[arg-type]
    owner, user = TransferEngine(config), TransferEngine(config)
    own = user.create_segment(4096)
    segment = owner.create_segment(4096)
    remote = user.open_segment(owner.endpoint, segment.id)
    lent = user.open_segment(owner.endpoint, owner.lend(bytearray(4096), read_only=True).id)
    segment.close()
    for refused in (remote, lent):
        with pytest.raises(TransferError) as raised:
            refused.write(numbers(own.address), numbers(0), numbers(4096))
        assert not raised.value.is_dirty
    user.close()
    owner.close()
