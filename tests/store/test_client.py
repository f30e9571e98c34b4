"""What a process sees of a store that works: real processes on loopback, both transports."""

from __future__ import annotations

import random
from array import array
from concurrent.futures import ThreadPoolExecutor

import pytest

from mooncake_core.errors import BufferNotRegistered, OutOfSpace

MIB = 1 << 20


def content(key, size):
    return random.Random(repr(key)).randbytes(size)


def words(*values):
    return array("Q", values)


@pytest.fixture
def client(quiet_cluster):
    return quiet_cluster.client


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 262_144, 262_145, MIB, MIB + 13, 11 * MIB])
def test_what_was_put_is_got(client, size):
    key = f"size-{size}"
    value = content(key, size)
    assert client.put(key, value)
    assert client.get(key) == value
    buffer = bytearray(size + 1)
    assert client.get_into(key, buffer) == size
    assert buffer[:size] == value


def test_a_key_that_is_there_is_not_put_again(client):
    assert client.put("once", b"first")
    assert not client.put("once", b"second")
    assert client.get("once") == b"first"


def test_a_miss_is_an_answer(client):
    assert client.get("nowhere") is None
    assert client.get_into("nowhere", bytearray(1)) is None
    assert not client.exists("nowhere")
    assert not client.remove("nowhere")


def test_a_removed_key_is_gone_and_can_be_put_again(client):
    assert client.put("gone", b"1")
    assert client.remove("gone")
    assert client.get("gone") is None
    assert client.put("gone", b"2")
    assert client.get("gone") == b"2"


ODD_KEYS = [
    *(b"", b"\0", b"a/b", b"a:b", b"../x", b"%2F", b"\xff\n\0", b"x" * 65536),
    *("ключ", "键", "🙂"),
]


@pytest.mark.parametrize("number", range(len(ODD_KEYS)))
def test_any_bytes_are_a_key(client, number):
    key = ODD_KEYS[number]
    assert client.put(key, b"value %d" % number)
    assert client.get(key) == b"value %d" % number


def test_a_key_that_is_too_long_is_refused(client):
    with pytest.raises(ValueError, match="65537 bytes"):
        client.put(b"x" * 65537, b"")


def test_batches_answer_key_by_key(client):
    keys = [b"batch-%d" % number for number in range(50)]
    values = [content(key, 1000 + len(key)) for key in keys]
    assert client.put(keys[7], values[7])
    stored = client.batch_put(zip(keys, values, strict=True))
    assert [bool(one) for one in stored] == [number != 7 for number in range(50)]
    assert client.batch_get([*keys, b"none"]) == [*values, None]
    assert client.batch_exists([b"none", *keys]) == [False, *[True] * 50]
    assert client.match_prefix([*keys[:9], b"none", *keys[9:]]) == 9
    assert client.batch_remove([keys[0], b"none", keys[1]]) == [True, False, True]
    assert client.match_prefix(keys) == 0


def test_an_empty_batch_is_answered_by_an_empty_list(client):
    assert client.batch_get([]) == client.batch_put([]) == client.batch_exists([]) == []
    assert client.match_prefix([]) == 0
    assert client.open_read([]).count == 0


@pytest.mark.parametrize("part_bytes", [300_000, 262_144, 1000])
def test_parts_are_written_in_any_order_and_read_one_by_one(client, part_bytes):
    size = 11 * MIB + 5 if part_bytes > 1000 else 10_500
    key = f"parts-{part_bytes}"
    value = content(key, size)
    parts = -(-size // part_bytes)
    source = client.engine.create_segment(size)
    source.buffer[:] = value
    target = client.engine.create_segment(part_bytes)
    with client.open_write(key, size_bytes=size, part_bytes=part_bytes) as writer:
        assert writer.part_count == parts
        assert not client.exists(key)
        for part in random.Random(1).sample(range(parts), parts):
            start, end = part * part_bytes, min(size, (part + 1) * part_bytes)
            middle = (start + end) // 2
            writer.write_part(
                part,
                words(source.address + start, source.address + middle),
                words(middle - start, end - middle),
            )
        writer.commit()
    assert client.get(key) == value
    with client.open_read([key, "none", key]) as reader:
        assert (reader.count, reader.sizes) == (1, [size])
        for part in range(parts):
            piece = value[part * part_bytes : (part + 1) * part_bytes]
            assert reader.read_part(0, part, words(target.address), words(len(piece)))
            assert bytes(target.buffer[: len(piece)]) == piece
    source.close()
    target.close()


def test_one_part_of_many_objects_is_read_at_once(client):
    keys = [f"layers-{number}" for number in range(6)]
    for key in keys:
        source = client.engine.create_segment(3000)
        source.buffer[:] = content(key, 3000)
        with client.open_write(key, size_bytes=3000, part_bytes=1000) as writer:
            for part in range(3):
                writer.write_part(part, words(source.address + 1000 * part), words(1000))
            writer.commit()
        source.close()
    target = client.engine.create_segment(6000)
    with client.open_read(keys) as reader:
        pieces = [(at, words(target.address + 1000 * at), words(1000)) for at in range(6)]
        assert reader.read_parts(2, pieces)
    for at, key in enumerate(keys):
        got = bytes(target.buffer[1000 * at : 1000 * at + 1000])
        assert got == content(key, 3000)[2000:]
    target.close()


def test_a_writer_that_ends_without_commit_leaves_nothing(client):
    before = client.stats()
    with client.open_write("half", size_bytes=100, part_bytes=50):
        assert client.stats().writing == before.writing + 1
    assert not client.exists("half")
    after = client.stats()
    assert (after.used_bytes, after.quarantined_bytes) == (before.used_bytes, 0)


def test_a_commit_with_a_part_missing_is_refused(client):
    with (
        client.open_write("gap", size_bytes=100, part_bytes=50) as writer,
        pytest.raises(ValueError, match="byte 0 \\(in part 0\\) of 100 was not written"),
    ):
        writer.commit()


def test_the_second_writer_of_a_key_is_told(client, quiet_cluster):
    other = quiet_cluster.new_client()
    with client.open_write("contended", size_bytes=1) as first:
        assert other.open_write("contended", size_bytes=1) is None
        assert not other.put("contended", b"x")
        first.abort()
    assert other.put("contended", b"x")
    assert client.open_write("contended", size_bytes=1) is None


def test_memory_that_is_not_registered_is_refused(client):
    with (
        client.open_write("wild", size_bytes=8) as writer,
        pytest.raises(BufferNotRegistered),
    ):
        writer.write_part(0, words(4096), words(8))


def test_lengths_that_do_not_fill_a_part_are_refused(client):
    source = client.engine.create_segment(64)
    with (
        client.open_write("short", size_bytes=8) as writer,
        pytest.raises(ValueError, match="8"),
    ):
        writer.write_part(0, words(source.address), words(7))
    source.close()


def test_arrays_of_another_type_are_refused(client):
    with (
        client.open_write("typed", size_bytes=8) as writer,
        pytest.raises(TypeError),
    ):
        writer.write_part(0, array("I", [1]), array("I", [8]))


def test_a_buffer_that_is_too_small_is_refused(client):
    client.put("large", b"12345")
    with pytest.raises(ValueError, match="4 bytes, the object 5"):
        client.get_into("large", bytearray(4))


def test_copies_lie_on_distinct_nodes_and_fewer_nodes_are_reported(client):
    before = client.stats().used_bytes
    with client.open_write("copies", size_bytes=1000, replicas=5) as writer:
        assert writer.replicas == 2
        assert client.stats().used_bytes - before == 2 * 1088


def test_an_object_that_no_node_can_hold_is_refused_with_the_figures(client):
    with pytest.raises(OutOfSpace, match="largest free extent"):
        client.open_write("monster", size_bytes=1 << 37)


def test_many_threads_share_a_client(client):
    def work(number):
        key = f"thread-{number}"
        value = content(key, 5000 + number)
        return client.put(key, value) and client.get(key) == value

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(300)))
