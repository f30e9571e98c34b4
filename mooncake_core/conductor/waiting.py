"""Waiting for something for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(timeout_s: float, work: Awaitable[T]) -> T:
    """Return what `work` returns; cancel it when the time is up or the caller is cancelled.

    asyncio.wait_for loses a cancellation that comes in the moment in which the work ends, before
    Python 3.12: a client that leaves then would be served to the end.

    Raises:
        asyncio.TimeoutError: it took longer.
    """
    task = asyncio.ensure_future(work)
    try:
        if not (await asyncio.wait([task], timeout=timeout_s))[0]:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
