"""Objects that are read in place."""

from __future__ import annotations

import random

import pytest

MIB = 1 << 20


def content(key, size):
    return random.Random(repr(key)).randbytes(size)


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_a_view_has_the_bytes_of_the_object(quiet_cluster, size):
    client, key = quiet_cluster.client, f"view-{size}"
    value = content(key, size)
    assert client.put(key, value)
    with client.view(key) as view:
        assert view.size_bytes == size
        assert view.is_copy == (quiet_cluster.transfer["same_host"] == "network")
        buffer = view.buffer
        assert buffer == value
        assert buffer.readonly
        with pytest.raises(BufferError, match="1 memoryviews"):
            view.close()
        buffer.release()
    with pytest.raises(ValueError, match="closed"):
        _ = view.buffer
    assert client.view("nowhere") is None


def test_what_is_viewed_is_not_evicted(cluster):
    client = cluster.client
    assert client.put("held", content("held", MIB))
    with client.view("held") as view:
        for number in range(40):
            assert client.put(f"press-{number}", content(number, MIB // 2))
        with view.buffer as buffer:
            assert buffer == content("held", MIB)
        assert cluster.there("held") == [True] or view.is_copy
    assert client.stats().evictions > 0


def test_what_is_raised_while_a_view_is_in_use_is_not_replaced(quiet_cluster):
    client = quiet_cluster.client
    assert client.put("raised", b"value")
    with pytest.raises(LookupError, match="mine"), client.view("raised") as view:
        buffer = view.buffer
        raise LookupError("mine")
    assert buffer == b"value"
    with pytest.raises(ValueError, match="closed"):
        _ = view.buffer
    buffer.release()
    with pytest.raises(BufferError), client.view("raised") as view:
        buffer = view.buffer
