"""Batches in which items fare differently: each has an outcome of its own, in its place."""

from __future__ import annotations

import contextlib
import gc
import weakref
from array import array

import pytest

from mooncake_core.errors import OutOfSpace, TooFewNodes
from mooncake_core.store import Link, PutOptions, PutResult
from tests.store.processes import eventually

MIB = 1 << 20
LONG = b"k" * 65_537
STORED, EXISTS, BUSY = PutResult.STORED, PutResult.EXISTS, PutResult.BUSY


@pytest.fixture
def client(quiet_cluster):
    client = quiet_cluster.client
    client.batch_remove([one.key for one in client.list_objects()])
    assert client.put("there", b"before")
    return client


def kinds(results, *twice):
    """Return each outcome: a PutResult, or the class of an error.

    Of a key that is in the batch `twice` the second is BUSY, or EXISTS when the first has been
    committed before it was asked for.
    """
    kinds = [result if isinstance(result, PutResult) else type(result) for result in results]
    for at in twice:
        kinds[at] = BUSY if kinds[at] is EXISTS else kinds[at]
    return kinds


ITEMS = [
    ("fresh", b"1", STORED),
    ("there", b"2", EXISTS),
    (LONG, b"3", ValueError),
    ("huge", bytes(80 * MIB), OutOfSpace),
    ("fresh", b"4", BUSY),  # the first of two in one batch is under way
    ("empty", b"", STORED),
    ("open", b"5", BUSY),
    (b"", b"of the empty key", STORED),
]


@pytest.mark.parametrize("turn", range(len(ITEMS)))
def test_each_of_a_mixed_batch_has_its_outcome_whatever_their_order(client, turn):
    """Whichever fault comes first is raised, and says how all have gone."""
    items = ITEMS[turn:] + ITEMS[:turn]
    with client.open_write("open", size_bytes=1), pytest.raises((ValueError, OutOfSpace)) as raised:
        client.batch_put([(key, value) for key, value, _ in items])
    wanted = [outcome for *_, outcome in items]
    once, twice = (at for at, (key, *_) in enumerate(items) if key == "fresh")
    wanted[once], wanted[twice] = STORED, BUSY
    assert kinds(raised.value.results, twice) == wanted
    first = next(one for one in raised.value.results if isinstance(one, Exception))
    assert repr(raised.value) == repr(first)
    winner = next(value for key, value, _ in items if key == "fresh")
    keys = ["fresh", "there", LONG, "huge", "empty", "open", b""]
    values = [winner, b"before", None, None, b"", None, b"of the empty key"]
    assert client.batch_get(keys) == values
    assert client.batch_exists(keys) == [value is not None for value in values]
    sizes = [one and one.size_bytes for one in client.describe(keys)]
    assert sizes == [value if value is None else len(value) for value in values]
    assert client.batch_remove(keys) == [value is not None for value in values]
    eventually(lambda: client.stats().used_bytes == 0, "what was read is let go")
    assert client.stats().writing == 0


def test_registered_memory_has_the_same_outcomes(client):
    memory = client.engine.create_segment(80 * MIB)
    keys, lengths = ["a", "there", LONG, "huge", "a", "b"], [1, 2, 3, 80 * MIB, 5, 0]
    with pytest.raises(ValueError, match="65537 bytes") as raised:
        client.batch_put_from(keys, array("Q", [memory.address] * 6), array("Q", lengths))
    wanted = [STORED, EXISTS, ValueError, OutOfSpace, BUSY, STORED]
    assert kinds(raised.value.results, 4) == wanted
    sizes = client.batch_get_into(
        ["there", "none", "a", "b", "huge"],
        array("Q", [memory.address + at * MIB for at in range(5)]),
        array("Q", [MIB] * 5),
    )
    assert sizes == [6, None, 1, 0, None]
    memory.close()


def test_writers_that_were_opened_beside_one_that_was_not_are_not_left_open(client):
    keys, sizes = ["first", "there", "huge", "last"], [1, 1, 1 << 37, 1]
    with pytest.raises(OutOfSpace) as raised:
        client.batch_open_write(keys, sizes)
    assert kinds(raised.value.results) == [STORED, EXISTS, OutOfSpace, STORED]
    assert client.stats().writing == 0
    eventually(lambda: client.stats().used_bytes == 128, "only what was there is left")
    first, there, last = client.batch_open_write(["first", "there", "last"], [0, 1, 0])
    assert there is EXISTS
    assert client.batch_commit([first, last]) == [True, True]


def test_what_is_strict_fails_alone(client):
    options = PutOptions(replicas=3, strict=True)
    with pytest.raises(TooFewNodes) as raised:
        client.batch_put([("a", b"1"), ("there", b"2"), ("b", b"3")], options=options)
    assert kinds(raised.value.results) == [TooFewNodes, EXISTS, TooFewNodes]
    assert client.batch_exists(["a", "b"]) == [False, False]


def test_an_item_of_a_group_whose_name_is_too_long_fails_alone(client):
    links = [None, Link(group=LONG), Link(group="well")]
    with pytest.raises(ValueError) as raised:
        client.batch_put([("a", b"1"), ("b", b"2"), ("c", b"3")], links=links)
    assert kinds(raised.value.results) == [STORED, ValueError, STORED]


@pytest.mark.parametrize(
    "items", [[("a", b"1"), (5, b"2")], [("a", b"1"), ("b", "no bytes")], [("a", b"1"), None]]
)
def test_a_batch_that_is_none_puts_nothing(client, items):
    with pytest.raises(TypeError):
        client.batch_put(items)
    assert not client.exists("a")


def test_the_values_of_a_batch_that_failed_go_with_its_error(client):
    """Without the garbage collector, which may not come for long."""

    class Value(bytearray):
        """Bytes that can be watched."""

    def fail():
        values = [Value(b"1"), Value(80 * MIB)]
        watched.extend(weakref.ref(value) for value in values)
        client.batch_put([("small", values[0]), ("huge", values[1])])

    watched = []
    gc.disable()
    try:
        with contextlib.suppress(OutOfSpace):
            fail()
        assert [watch() for watch in watched] == [None, None]
    finally:
        gc.enable()


def test_a_commit_of_many_says_of_each_whether_it_is_visible(client):
    writers = client.batch_open_write(["a", "b", "c"], [0, 1, 0])
    overtaken = client.open_write("d", size_bytes=0)
    assert client.put("d", b"over", options=PutOptions(upsert=True))
    with pytest.raises(ValueError, match="not written") as raised:
        client.batch_commit([*writers, overtaken])
    first, fault, *rest = raised.value.results
    assert (first, repr(fault), *rest) == (True, repr(raised.value), True, False)
    assert client.batch_exists(["a", "b", "c", "d"]) == [True, False, True, True]
    writers[1].abort()
