"""Any ranges, in any order: writes that are joined to one object, and reads that are verified."""

from __future__ import annotations

import itertools
import random
from array import array
from concurrent.futures import ThreadPoolExecutor

import pytest

KIB, MIB = 1 << 10, 1 << 20


def words(*values):
    return array("Q", values)


@pytest.fixture
def client(quiet_cluster):
    return quiet_cluster.client


@pytest.fixture
def memory(client):
    segment = client.engine.create_segment(2 * MIB)
    segment.buffer[:] = random.Random(5).randbytes(2 * MIB)
    yield segment
    segment.close()


def cuts_of(size, count, rng):
    edges = sorted({0, size, *(rng.randrange(size) for _ in range(count))})
    pairs = list(itertools.pairwise(edges))
    rng.shuffle(pairs)
    return pairs


@pytest.mark.parametrize("part_bytes", [0, 300_000, 100_000])
def test_ranges_in_any_order_by_several_threads_are_one_object(client, memory, part_bytes):
    size, key = MIB + 77, f"ranges-{part_bytes}"
    pairs = cuts_of(size, 60, random.Random(part_bytes))
    with client.open_write(key, size_bytes=size, part_bytes=part_bytes) as writer:

        def write(pair):
            begin, end = pair
            middle = (begin + end) // 2
            writer.write(
                begin,
                words(memory.address + begin, memory.address + middle),
                words(middle - begin, end - middle),
            )

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, pairs))
        writer.commit()
    assert client.get(key) == memory.buffer[:size]
    assert client.remove(key)


def test_a_byte_is_written_once_and_none_is_left_out(client, memory):
    with client.open_write("holes", size_bytes=1000) as writer:
        writer.write(100, words(memory.address), words(300))
        with pytest.raises(ValueError, match="byte 150 was written before"):
            writer.write(150, words(memory.address), words(10))
        with pytest.raises(ValueError, match="lie outside the object of 1000 bytes"):
            writer.write(990, words(memory.address), words(11))
        with pytest.raises(ValueError, match="byte 0 of 1000 was not written"):
            writer.commit()
        writer.write(0, words(memory.address), words(100))
        with pytest.raises(ValueError, match="byte 400 of 1000 was not written"):
            writer.commit()
    assert not client.exists("holes")


def test_any_range_is_read_and_verified(client, memory):
    size, rng = MIB + 300, random.Random(9)
    value = bytes(memory.buffer[:size])
    assert client.put("read", value)
    target = client.engine.create_segment(2 * MIB)
    with client.open_read(["read"]) as reader:
        for begin, end in [(0, size), (size, size), *cuts_of(size, 40, rng)]:
            assert reader.read(0, begin, words(target.address), words(end - begin))
            assert target.buffer[: end - begin] == value[begin:end]
            assert client.get_range("read", begin, end - begin) == value[begin:end]
        with pytest.raises(ValueError, match="lie outside"):
            reader.read(0, size - 1, words(target.address), words(2))
    assert client.get_range("read", size - 5) == value[-5:]
    assert client.get_range("nowhere", 0, 1) is None
    target.close()


def test_ranges_of_several_objects_are_read_in_one_call(client, memory):
    values = {f"many-{at}": bytes(memory.buffer[at : at + 5000]) for at in range(4)}
    client.batch_put(values.items())
    target = client.engine.create_segment(4096)
    with client.open_read([*values, "none"], leading=False) as reader:
        assert reader.found == [5000] * 4 + [None]
        ranges = [(at, 1000 * at, words(target.address + 100 * at), words(100)) for at in range(4)]
        assert reader.read_ranges(ranges) == [True] * 4
        with pytest.raises(ValueError, match="object 4 of 5 is not there"):
            reader.read(4, 0, words(target.address), words(1))
    for at, value in enumerate(values.values()):
        assert target.buffer[100 * at : 100 * at + 100] == value[1000 * at : 1000 * at + 100]
    target.close()


def test_several_objects_are_written_and_committed_together(client, memory):
    keys = [f"together-{at}" for at in range(5)]
    writers = client.batch_open_write(keys, [200] * 5)
    for half in (0, 100):
        client.write_ranges(
            writers,
            [half] * 5,
            words(*(memory.address + 1000 * at + half for at in range(5))),
            words(*[100] * 5),
        )
    client.batch_commit(writers)
    assert client.batch_get(keys) == [memory.buffer[1000 * at :][:200] for at in range(5)]


def test_lengths_whose_sum_wraps_are_refused_at_once_and_take_nothing(client, memory):
    twice, lengths = words(memory.address, memory.address), words((1 << 64) - 1, 2)
    with client.open_write("wraps", size_bytes=1) as writer:
        with pytest.raises(ValueError, match="outside the object"):
            writer.write(0, twice, lengths)
        writer.write(0, words(memory.address), words(1))
        writer.commit()
    with client.open_read(["wraps"]) as reader, pytest.raises(ValueError, match="outside"):
        reader.read(0, 0, twice, lengths)
    with pytest.raises(ValueError, match="refuses"):
        client.put_from("never", twice, lengths)
    assert client.remove("wraps")


def test_memory_that_no_key_counts_is_refused(client, memory):
    twice = words(memory.address, memory.address)
    with pytest.raises(ValueError, match="than counted"):
        client.batch_put_from(["never"], twice, words(1, 1), counts=words(1))
    assert not client.exists("never")


@pytest.mark.parametrize("index, offset", [(-1, 0), (0, -1), (1 << 64, 0), ("0", 0)])
def test_an_index_that_is_none_is_refused(client, memory, index, offset):
    where = words(memory.address), words(1)
    with client.open_read([]) as reader, pytest.raises(TypeError, match="not an integer"):
        reader.read(index, offset, *where)
