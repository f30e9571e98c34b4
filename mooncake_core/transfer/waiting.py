"""Waiting in asyncio for descriptors of native objects."""

from __future__ import annotations

import asyncio
import os


async def readable(descriptor: int) -> None:
    """Wait until a descriptor is readable; any number of tasks may wait for the same one."""
    loop = asyncio.get_running_loop()
    # A loop keeps one reader a descriptor: each waiter has its own.
    event = os.dup(descriptor)
    ready = asyncio.Event()
    loop.add_reader(event, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(event)
        os.close(event)
