"""Batches: many keys, registered memory in runs, and how each item has gone."""

from __future__ import annotations

import random
import threading
from array import array

import pytest

from mooncake_core.errors import GroupGone, OutOfSpace, TooFewNodes
from mooncake_core.store import Link, PutOptions, PutResult

KIB, MIB = 1 << 10, 1 << 20


def words(*values):
    return array("Q", values)


@pytest.fixture
def client(quiet_cluster):
    return quiet_cluster.client


def test_five_thousand_keys_go_in_and_come_out(client):
    values = {b"%d-" % at * 7: b"%d" % at for at in range(5000)}
    assert all(client.batch_put(values.items()))
    assert client.batch_get([*values, b"none"]) == [*values.values(), None]
    assert client.match_prefix([*values, b"none"]) == 5000
    assert client.open_read([*values, b"none"]).count == 5000
    assert client.batch_exists(values) == [True] * 5000
    assert client.batch_remove(values) == [True] * 5000


def test_a_key_is_bytes_or_the_utf_8_of_a_str(client):
    assert client.put("schlüssel", b"1")
    assert client.batch_exists(["schlüssel", "schlüssel".encode()]) == [True, True]
    assert client.remove("schlüssel".encode())
    with pytest.raises(TypeError, match="bytes or str"):
        client.exists(7)
    with pytest.raises(UnicodeEncodeError):
        client.batch_get(["well", "\ud800"])


def test_more_writers_than_a_message_holds_are_committed_at_once(client):
    keys = [f"writer-{at}" for at in range(1500)]
    client.batch_commit(client.batch_open_write(keys, [0] * 1500))
    assert client.batch_exists(keys) == [True] * 1500
    assert client.batch_remove(keys) == [True] * 1500


def test_keys_of_64_kib_are_a_batch(client):
    values = {bytes([at]) * 65536: b"%d" % at for at in range(40)}
    assert all(client.batch_put(values.items()))
    assert client.batch_get(values) == list(values.values())
    assert client.batch_remove(values) == [True] * 40


def test_memory_in_runs_is_gathered_and_scattered(client):
    source, target = (client.engine.create_segment(MIB) for _ in range(2))
    source.buffer[:] = random.Random(3).randbytes(MIB)
    here, there = source.address, target.address
    assert client.put_from("one", words(here, here + 500), words(100, 50))
    wanted = source.buffer[:100].tobytes() + source.buffer[500:550].tobytes()
    assert client.get("one") == wanted
    assert client.get_into_memory("one", words(there + 200, there), words(64, 99)) == 150
    assert target.buffer[200:264].tobytes() + target.buffer[:86].tobytes() == wanted
    results = client.batch_put_from(
        ["two", "three", "empty"],
        words(here, here + 10, here + 70_000),
        words(10, 60_000, 300_000),
        counts=words(2, 1, 0),
    )
    assert results == [PutResult.STORED] * 3
    sizes = client.batch_get_into(
        ["three", "none", "two", "empty"],
        words(there, there, there + 400_000, there),
        words(300_001, 0, 60_010, 0),
    )
    assert sizes == [300_000, None, 60_010, 0]
    assert target.buffer[:300_000] == source.buffer[70_000:370_000]
    assert target.buffer[400_000:460_010] == source.buffer[:60_010]
    with pytest.raises(ValueError, match="the memory of key 0 has 9 bytes, the object 150"):
        client.batch_get_into(["one"], words(there), words(9))
    source.close()
    target.close()


def test_each_item_says_how_it_has_gone(client):
    assert client.put("there", b"1")
    with client.open_write("busy", size_bytes=1):
        results = client.batch_put([("there", b"2"), ("busy", b"2"), ("fresh", b"2")])
    assert results == [PutResult.EXISTS, PutResult.BUSY, PutResult.STORED]
    assert [bool(one) for one in results] == [False, False, True]


def test_one_item_without_room_leaves_the_others_alone(client):
    monster = client.engine.create_segment(80 * MIB)
    with pytest.raises(OutOfSpace) as raised:
        client.batch_put([("small", b"1"), ("monster", monster.buffer), ("other", b"2")])
    error = raised.value
    first, fault, last = error.results
    assert (first, repr(fault), last) == (PutResult.STORED, repr(error), PutResult.STORED)
    assert error.capacity_bytes == client.stats().capacity_bytes
    assert 0 < error.largest_free_extent_bytes < 80 * MIB
    assert client.batch_get(["small", "other"]) == [b"1", b"2"]
    monster.close()


def test_strict_copies_are_all_there_or_none(client):
    with pytest.raises(TooFewNodes, match=r"3 are wanted.*are in 2;"):
        client.put("strict", b"1", options=PutOptions(replicas=3, strict=True))
    assert not client.exists("strict")
    assert client.put("lenient", b"1", options=PutOptions(replicas=3))


def test_an_upsert_replaces_and_a_reader_of_the_old_value_goes_on(client):
    target = client.engine.create_segment(64)
    assert client.put("versioned", b"old")
    with client.open_read(["versioned"]) as reader:
        assert client.upsert("versioned", b"new!")
        assert client.get("versioned") == b"new!"
        assert reader.read(0, 0, words(target.address), words(3))
        assert target.buffer[:3] == b"old"
    target.close()


def test_a_put_that_an_upsert_overtakes_finds_the_key_there(client):
    source = client.engine.create_segment(64)
    with client.open_write("raced", size_bytes=1) as writer:
        assert client.upsert("raced", b"upserted")
        writer.write(0, words(source.address), words(1))
        assert writer.commit() is False
    assert client.get("raced") == b"upserted"
    source.close()


def test_without_checksums_values_come_and_go(client, quiet_cluster):
    value = random.Random(1).randbytes(MIB + 1)
    careless = quiet_cluster.new_client(checksums=False)
    assert careless.put("bare", value)
    assert client.get("bare") == careless.get("bare") == value
    assert client.get_range("bare", 7, 300_000) == value[7:300_007]
    assert client.put("sealed", value)
    assert careless.get("sealed") == value


def test_members_of_a_group_are_seen_together(client):
    links = [Link(group="pair", group_size=2)]
    assert client.batch_put([("left", b"1")], links=links)[0]
    assert client.get("left") is None
    assert client.batch_put([("right", b"2")], links=links)[0]
    assert client.batch_get(["left", "right"]) == [b"1", b"2"]


def test_objects_are_described_listed_and_pinned(client):
    names = {b"shelf/%d" % at for at in range(30)}
    client.batch_put((name, b"x" * 10) for name in names)
    assert {one.key for one in client.list_objects("shelf/", page=7)} == names
    one, none = client.describe(["shelf/0", "nowhere"])
    assert none is None
    assert (one.size_bytes, one.pin, len(one.copies)) == (10, "none", 1)
    assert client.size("shelf/0") == 10
    assert client.size("nowhere") is None
    client.put("soft", b"", options=PutOptions(pin="soft"))
    assert client.describe(["soft"])[0].pin == "soft"
    assert client.pin(["shelf/0"], "soft") == [True]
    assert client.describe(["shelf/0"])[0].pin == "soft"
    assert client.pin(["shelf/0", "nowhere"]) == [True, False]
    assert client.describe(["shelf/0"])[0].pin == "hard"
    assert client.unpin(["shelf/0"]) == [True]
    assert client.describe(["shelf/0"])[0].pin == "none"


def test_eight_threads_that_put_one_key_store_it_once_each_time(client):
    barrier, stored = threading.Barrier(8), []

    def put():
        for number in range(200):
            barrier.wait()
            if client.put(f"race-{number}", b"%d" % number):
                stored.append(number)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stored) == list(range(200))


def test_a_commit_tells_whether_another_value_has_taken_the_key(client):
    writers = client.batch_open_write(["late", "in-time"], [0, 0])
    assert client.upsert("late", b"newer")
    assert client.batch_commit(writers) == [False, True]
    assert client.batch_get(["late", "in-time"]) == [b"newer", b""]


def test_a_put_whose_group_dies_meanwhile_says_so(client):
    link = Link(group="mortal")
    assert client.put("mortal-0", b"0", link=link)
    source = client.engine.create_segment(64)
    with client.open_write("mortal-1", size_bytes=1, link=link) as writer:
        writer.write(0, words(source.address), words(1))
        assert client.remove("mortal-0")
        with pytest.raises(GroupGone, match="its members"):
            writer.commit()
    assert client.put("mortal-1", b"1", link=link)
    source.close()


@pytest.mark.parametrize(
    ("wanted", "cause"),
    [
        ({"key": b"k" * 65_537}, "65537 bytes of key"),
        ({"link": Link(group=b"g" * 65_537)}, "65537 bytes of group name"),
        ({"size_bytes": 2**64 - 1}, "18446744073709551615 bytes "),
        ({"size_bytes": 1 << 22, "part_bytes": 1}, r"4194304 chunks \(at most 2048\)"),
        ({"size_bytes": 1 << 38}, "more than 4096 stripes"),
    ],
)
def test_a_refused_put_is_told_what_is_beyond_its_bounds(client, wanted, cause):
    wanted = {"key": "bounds", "size_bytes": 1, **wanted}
    if wanted["size_bytes"] == 1 << 38:
        wanted["options"] = PutOptions(replicas=2)
    with pytest.raises(ValueError, match=cause) as raised:
        client.open_write(wanted.pop("key"), **wanted)
    assert str(raised.value).count("at most") <= 1


def test_memory_that_is_counted_wrongly_is_refused(client):
    memory = bytearray(8)
    with client.engine.register(memory) as buffer:
        runs = words(buffer.address, buffer.address + 4), words(4, 4)
        for counts, problem in ((words(1), "given than counted"), (words(3), "counted than given")):
            with pytest.raises(ValueError, match=problem):
                client.batch_put_from(["counted"], *runs, counts=counts)
            with pytest.raises(ValueError, match=problem):
                client.batch_get_into(["counted"], *runs, counts=counts)
