"""What is no key, and options that mean nothing, are refused before anything is sent."""

from __future__ import annotations

import math

import pytest

from mooncake_core.store import Link, PutOptions
from mooncake_core.store.options import MAX_PREFERRED, pin_number, pin_seconds, raw
from tests.store import wire
from tests.store.site import Site

NO_TIMES = [math.nan, math.inf, -math.inf, -1.0, 0, 1e300]


def test_a_key_is_what_its_bytes_are():
    assert raw("a\u00e9") == b"a\xc3\xa9"
    assert raw(b"b") == raw(bytearray(b"b")) == raw(memoryview(b"b")) == b"b"


@pytest.mark.parametrize("key", [5, None, [1, 2], 1.5])
def test_what_has_no_bytes_is_no_key(key):
    with pytest.raises(TypeError):
        raw(key)


@pytest.mark.parametrize("soft_pin_s", NO_TIMES)
def test_a_soft_pin_lasts_a_time_that_there_is(soft_pin_s):
    with pytest.raises(ValueError, match="soft_pin_s"):
        PutOptions(pin="soft", soft_pin_s=soft_pin_s)
    with pytest.raises(ValueError, match="soft_pin_s"):
        pin_seconds("soft", soft_pin_s)


def test_a_soft_pin_lasts_half_an_hour_unless_something_else_is_said():
    assert pin_seconds("soft", None) == 1800
    assert pin_seconds("soft", 20) == 20


@pytest.mark.parametrize("pin", ["none", "hard"])
def test_only_a_soft_pin_ends(pin):
    assert pin_seconds(pin, None) == 0
    for refused in (
        lambda: PutOptions(pin=pin, soft_pin_s=20),
        lambda: pin_seconds(pin, 20),
    ):
        with pytest.raises(ValueError, match=f"soft_pin_s is 20, and pin is '{pin}'"):
            refused()


@pytest.mark.parametrize("replicas", [-1, 0, 17, 1 << 40])
def test_copies_are_counted_from_1_to_16(replicas):
    with pytest.raises(ValueError, match="replicas"):
        PutOptions(replicas=replicas)


def test_unknown_pins_and_too_many_preferred_nodes_are_refused():
    for refused in (lambda: PutOptions(pin="firm"), lambda: pin_number("firm")):
        with pytest.raises(ValueError, match="one of none, soft, hard"):
            refused()
    with pytest.raises(ValueError, match="preferred"):
        PutOptions(preferred=("node",) * (MAX_PREFERRED + 1))


@pytest.mark.parametrize("number", [1.0, math.nan, "1", None])
def test_what_is_counted_is_a_whole_number(number):
    with pytest.raises(TypeError, match=r"depth is .*; a whole number is needed"):
        Link(depth=number)
    if number is not None:
        with pytest.raises(TypeError, match="replicas"):
            PutOptions(replicas=number)


def test_one_name_is_no_list_of_names():
    with pytest.raises(TypeError, match="preferred is the one text 'node-7'"):
        PutOptions(preferred="node-7")


@pytest.mark.parametrize("field", ["depth", "group_size"])
@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_numbers_of_a_link_fit_the_wire(field, number):
    with pytest.raises(ValueError, match=field):
        Link(**{field: number})


def test_the_master_refuses_too_many_preferred_nodes():
    site = Site("a")
    assert site.put(b"k", preferred=[b"b"] * (MAX_PREFERRED + 1)).outcome == wire.INVALID
    assert site.put(b"k", preferred=[b"b"] * MAX_PREFERRED).outcome == wire.STARTED


@pytest.mark.parametrize("last_s, is_left", [(1, False), (100, True)])
def test_of_many_soft_pins_the_last_one_counts(last_s, is_left):
    site = Site("a")
    site.put(b"k")
    for seconds in (50, 1, 200, last_s):
        assert site.step(wire.SetPin(wire.SOFT_PIN, seconds * 1_000_000, [b"k"])).flags == b"\1"
    for _ in range(30):
        site.tick()
    [info] = site.step(wire.Describe([b"k"])).objects
    assert info.pin == (wire.SOFT_PIN if is_left else wire.NO_PIN)


def test_a_soft_pin_for_longer_than_anyone_can_count_is_one_all_the_same():
    site = Site("a")
    site.put(b"k")
    assert site.step(wire.SetPin(wire.SOFT_PIN, (1 << 64) - 1, [b"k"])).flags == b"\1"
    site.tick()
    [info] = site.step(wire.Describe([b"k"])).objects
    assert info.pin == wire.SOFT_PIN


def test_members_of_no_group_cannot_be_counted():
    with pytest.raises(ValueError, match="group_size is 2, and there is no group"):
        Link(group_size=2)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"strict": "yes"}, "strict is 'yes'; True or False is needed"),
        ({"soft_pin_s": "5", "pin": "soft"}, "soft_pin_s is '5'; a number of seconds"),
        ({"preferred": (1,)}, "one of preferred is 1; a name"),
        ({"preferred": 5}, "preferred is one int; a list of names"),
    ],
)
def test_an_option_of_another_type_is_named(fields, problem):
    with pytest.raises(TypeError, match=problem):
        PutOptions(**fields)
