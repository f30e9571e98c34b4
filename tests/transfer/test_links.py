"""Batches over four links between two network namespaces. Needs root; skipped without."""

from collections.abc import Iterator

import pytest

from benchmarks.links import COUNT, Bed
from benchmarks.namespaces import missing

MIB = 1 << 20


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if reason := missing():
        pytest.skip(reason)
    bed = Bed(500, 48 * MIB)
    yield bed
    bed.close()


@pytest.mark.parametrize("op", ["read", "write"])
def test_a_batch_is_faster_than_any_one_link(bed: Bed, op: str) -> None:
    rate, plain, _ = bed.ratio(op, seed=1, plain_s=0.3)
    assert rate > 1.5 * plain / COUNT
    paths = bed.user.call("paths")
    assert len(paths) == COUNT
    assert all(path["state"] == "up" and path[f"{_past(op)}_bytes"] > 0 for path in paths)


def test_a_link_that_is_cut_costs_a_short_stall_and_is_used_again_when_it_is_back(
    bed: Bed,
) -> None:
    stall_s, return_s = bed.cut("write")
    assert stall_s < 1.0
    assert return_s < 5.0


def _past(op: str) -> str:
    return {"read": "read", "write": "written"}[op]
