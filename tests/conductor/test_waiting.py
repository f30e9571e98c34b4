"""Waiting with a limit neither loses a result nor a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from mooncake_core.conductor.waiting import within


async def turns(count: int) -> None:
    """Let the loop go round `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", range(5))
async def test_a_cancellation_is_not_lost_when_the_work_ends_at_that_moment(after: int) -> None:
    gate = asyncio.Event()

    async def served() -> None:
        await within(30, gate.wait())
        await asyncio.Event().wait()

    task = asyncio.ensure_future(served())
    await turns(3)
    gate.set()
    await turns(after)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


async def test_what_takes_too_long_is_cancelled() -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(asyncio.TimeoutError):
        await within(0.01, work)
    await turns(1)
    assert work.cancelled()


async def test_what_ends_in_time_gives_its_result_or_its_error() -> None:
    async def fail() -> None:
        raise KeyError

    assert await within(30, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(KeyError):
        await within(30, fail())
