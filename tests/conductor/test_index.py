"""The prefix index against a plain model of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.conductor.index import PrefixIndex
from mooncake_core.messages import KvEvents

NAMES = [bytes([i]) * 16 for i in range(6)]


def hexes(*numbers: int) -> list[str]:
    return [NAMES[n].hex() for n in numbers]


def filled(**blocks: list[int]) -> PrefixIndex:
    index = PrefixIndex()
    for name, numbers in blocks.items():
        index.add_instance(name)
        assert index.apply(name, KvEvents(seq=0, stored=hexes(*numbers)))
    return index


def test_the_match_of_each_instance_ends_at_its_first_gap() -> None:
    index = filled(a=[0, 1, 2], b=[0, 2], c=[1, 2], d=[])
    assert index.match(NAMES) == {"a": 3, "b": 1, "c": 0, "d": 0}


def test_removed_blocks_match_no_more() -> None:
    index = filled(a=[0, 1], b=[0, 1])
    assert index.apply("a", KvEvents(seq=1, removed=hexes(0)))
    assert index.match(NAMES) == {"a": 0, "b": 2}


def test_a_gap_in_the_sequence_forgets_all_and_asks_for_registration() -> None:
    index = filled(a=[0])
    assert not index.apply("a", KvEvents(seq=2, stored=hexes(1)))
    assert index.match(NAMES) == {"a": 0}


def test_a_repeated_message_changes_nothing() -> None:
    index = filled(a=[0])
    events = KvEvents(seq=1, stored=hexes(1))
    assert index.apply("a", events) and index.apply("a", events)
    assert index.match(NAMES) == {"a": 2}
    assert index.apply("a", KvEvents(seq=2, removed=hexes(1)))


def test_sequence_0_forgets_what_was_before() -> None:
    index = filled(a=[0, 1])
    assert index.apply("a", KvEvents(seq=0, stored=hexes(0)))
    assert index.match(NAMES) == {"a": 1}


def test_an_instance_that_was_removed_takes_its_blocks_along() -> None:
    index = filled(a=[0, 1], b=[0])
    index.remove_instance("a")
    index.add_instance("c")
    assert index.match(NAMES) == {"b": 1, "c": 0}


def test_a_name_that_is_not_hexadecimal_is_refused_and_changes_nothing() -> None:
    index = filled(a=[0])
    with pytest.raises(ValueError, match="hexadecimal"):
        index.apply("a", KvEvents(seq=1, stored=[*hexes(1), "zz"]))
    assert index.match(NAMES) == {"a": 1}


operation = st.tuples(
    st.sampled_from("abc"), st.sampled_from(["stored", "removed"]), st.sets(st.integers(0, 5))
)


@given(st.lists(operation, max_size=30), st.permutations(range(6)))
def test_it_agrees_with_sets(operations: list[tuple[str, str, set[int]]], order: list[int]) -> None:
    index = filled(a=[], b=[], c=[])
    sets: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    seq = dict.fromkeys("abc", 1)
    for name, kind, numbers in operations:
        assert index.apply(name, KvEvents(seq=seq[name], **{kind: hexes(*numbers)}))
        seq[name] += 1
        sets[name] = sets[name] | numbers if kind == "stored" else sets[name] - numbers
    expected = {
        name: next((i for i, n in enumerate(order) if n not in held), len(order))
        for name, held in sets.items()
    }
    assert index.match([NAMES[n] for n in order]) == expected
    assert all(index.block_count(name) == len(held) for name, held in sets.items())
