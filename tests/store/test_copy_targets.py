"""Where copies go that are made in the background, while nodes come and go."""

from __future__ import annotations

import pytest

from tests.store import wire
from tests.store.site import Site


@pytest.mark.parametrize("objects", [18, 19])
@pytest.mark.parametrize("slices", range(12))
def test_a_copy_does_not_go_to_whoever_comes_in_the_place_of_its_target(objects, slices):
    """Room is made for it on `b`, which is lost; `c` takes its number once all there is free."""
    site = Site("a", "b", capacity=64 << 10, step_evictions=1)
    for at in range(objects):
        site.put(b"b%d" % at, size=3000, preferred=[b"b"])
    site.put(b"k", size=40_000, preferred=[b"a"])
    created = site.create(wire.COPY, b"k", targets=["b"])
    site.core.native.run_slice(site.now)
    assert site.task(created.task).state == wire.RUNNING
    assert site.stats().copy_orders == 0, "it still waits for room"
    site.lose("b")
    for _ in range(slices):
        site.core.native.run_slice(site.now)
    site.add_node("c", capacity=64 << 10)
    site.settle()
    assert site.task(created.task).state == wire.TASK_FAILED
    assert site.homes(b"k") == ["a"]
    assert site.used("c") == 0
