"""Objects by prefix and by regular expression."""

from __future__ import annotations

import re
import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mooncake_core.store import Link
from mooncake_core.store.patterns import (
    list_matching,
    literal_prefix,
    remove_by_prefix,
    remove_matching,
)


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("^model/7/", b"model/7/"),
        (r"\Amodel", b"model"),
        ("model", b""),
        ("^", b""),
        ("^a.b", b"a"),
        (r"^a\.b", b"a.b"),
        (r"^a\d", b"a"),
        (r"^a\x41", b"a"),
        (r"^ab\\c", b"ab\\c"),
        ("^ab*", b"a"),
        ("^ab?c", b"a"),
        ("^ab+c", b"ab"),
        ("^ab{0,2}", b"a"),
        ("^ab$", b"ab"),
        ("^(ab)c", b""),
        ("^ab|^cd", b""),
        ("^a(b|c)", b""),
        ("(?i)^ab", b""),
        ("(?m)^ab", b""),
        (r"(?x)^a b", b""),
        ("^ключ", "ключ".encode()),
        ("^\udcff", b"\xff"),
        (b"^\xff\x00", b"\xff\x00"),
        (rb"^\xff", b""),
    ],
)
def test_the_literal_beginning_of_an_expression_is_found(
    pattern: str | bytes, prefix: bytes
) -> None:
    assert literal_prefix(re.compile(pattern)) == prefix


@given(some.text("ab.*+?\\|^$()[]{}1,dA", max_size=8), some.text("ab.1", max_size=8))
def test_whatever_an_expression_is_found_in_begins_with_its_literal_beginning(
    pattern: str, key: str
) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(f"^{pattern}")
    except re.error:
        return
    if compiled.search(key):
        assert key.encode().startswith(literal_prefix(compiled))


@pytest.fixture
def client(quiet_cluster):
    client = quiet_cluster.client
    remove_by_prefix(client, b"")
    yield client
    remove_by_prefix(client, b"")


def keys_of(objects):
    return {one.key for one in objects}


def test_expressions_are_looked_for_in_keys(client):
    keys = [b"model-1/k/0", b"model-1/v/0", b"model-2/k/0", b"\xff\n/k/1", "ключ/k".encode()]
    client.batch_put((key, b"x") for key in keys)
    assert keys_of(list_matching(client, "/k/")) == {keys[0], keys[2], keys[3]}
    assert keys_of(list_matching(client, "^model-1/")) == set(keys[:2])
    assert keys_of(list_matching(client, "/0$", prefix="model-1")) == set(keys[:2])
    assert keys_of(list_matching(client, "^model-2", prefix="model-1")) == set()
    assert keys_of(list_matching(client, "^ключ.k$")) == {keys[4]}
    assert keys_of(list_matching(client, "^\udcff\n")) == {keys[3]}
    assert keys_of(list_matching(client, rb"^\xff\n")) == {keys[3]}
    assert keys_of(list_matching(client, "")) == set(keys)


def test_what_is_no_expression_is_refused_before_anything_is_asked(client):
    with pytest.raises(ValueError, match="'\\(' is no regular expression"):
        list_matching(client, "(")


def test_removing_says_how_many_and_leaves_the_others(client):
    client.batch_put((f"{kind}/{number}", b"") for kind in "ab" for number in range(250))
    assert remove_matching(client, "^a/.*[02468]$", page=7) == 125
    assert remove_matching(client, "^a/.*[02468]$", page=7) == 0
    assert remove_by_prefix(client, "a/", page=7) == 125
    assert keys_of(list_matching(client, "")) == {b"b/%d" % number for number in range(250)}
    assert remove_by_prefix(client, "b/24") == 11


def test_members_of_a_group_that_was_never_whole_are_removed_too(client):
    for prefix, remove in (("p/", remove_by_prefix), ("m/", remove_matching)):
        for number in range(3):
            link = Link(group=f"{prefix}group", group_size=4)
            assert client.put(f"{prefix}{number}", b"value", link=link)
        assert list(client.list_objects(prefix)) == []
        there = client.list_objects(prefix, unreadable=True)
        assert {one.group for one in there} == {f"{prefix}group".encode()}
        assert remove(client, prefix) == 1  # the others go with it
        assert list(client.list_objects(prefix, unreadable=True)) == []


def test_what_is_there_all_the_while_is_removed_while_others_come_and_go(client):
    there = [f"stays/{number}" for number in range(600)]
    client.batch_put((key, b"value") for key in there)
    ended = threading.Event()

    def churn():
        number = 0
        while not ended.is_set():
            client.put(f"comes/{number}", b"")
            client.remove(f"comes/{number - 20}")
            number += 1

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        assert remove_by_prefix(client, "stays/", page=10) == 600
    finally:
        ended.set()
        churning.join()
    assert client.batch_exists(there) == [False] * 600
