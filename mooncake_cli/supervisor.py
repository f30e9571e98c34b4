"""The processes of `mooncake up`: started in order, kept running, stopped with nothing left.

One event loop on the main thread: the kernel kills a child when the thread that started it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from mooncake_cli.child import Child
from mooncake_cli.http import get_json
from mooncake_cli.leftovers import StateFile
from mooncake_cli.plan import MAX_FAILED_STARTS, STOP_ORDER, Part, flags, reachable, start_order
from mooncake_core.config import UpConfig
from mooncake_core.errors import MooncakeError

GRACE_S = 8.0
"""How long a process that was told to stop may take before it is killed."""
START_TIMEOUT_S = 300.0


class Audience(Protocol):
    """Who is told what happens."""

    def log(self, name: str, line: str) -> None:
        """Take a line that the process of this name wrote."""

    def say(self, text: str) -> None:
        """Take a sentence about the processes."""

    def restarted(self, child: Child) -> None:
        """Take note that a process serves again."""


class Supervisor:
    """A cluster on this machine.

    Args:
        config: with a model path that every process can load as it is.
        state: where the running processes are noted.
        audience: is told what happens.
    """

    def __init__(self, config: UpConfig, state: StateFile, audience: Audience) -> None:
        self._config = config
        self._state = state
        self._audience = audience
        self._groups = [[self._child(part) for part in group] for group in start_order(config)]
        self._keepers: dict[Child, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_up = False
        self._is_hurried = False

    @property
    def children(self) -> list[Child]:
        """Every process, in the order of their starts."""
        return [child for group in self._groups for child in group]

    @property
    def endpoint(self) -> str:
        """host:port at which this host reaches the conductor."""
        (conductor,) = self._of_roles("conductor")
        return reachable(conductor.addresses["http"])

    async def run(self, ready: Callable[[], None]) -> None:
        """Start everything, call `ready`, and return after `stop` with every process gone.

        Raises:
            MooncakeError: a process does not start, or was given up and cannot be done without.
        """
        try:
            if await self._start():
                self._is_up = True
                ready()
                await self._reach(asyncio.Event().wait(), "", timeout_s=None)
        finally:
            await self._end_all()

    def stop(self) -> None:
        """Stop everything: with grace, or at once when asked a second time."""
        if self._stopping.is_set():
            self._is_hurried = True
            for child in self.children:
                child.send(signal.SIGKILL)
        self._stopping.set()

    async def _start(self) -> bool:
        for group in self._groups:
            for child in group:
                self._keepers[child] = asyncio.create_task(self._keep(child))
                self._keepers[child].add_done_callback(self._keeper_ended)
            if not await self._reach(_all_serve(group), "every process serves"):
                return False
        return await self._reach(self._healthy(), "the cluster is healthy")

    async def _reach(
        self, goal: Coroutine[Any, Any, Any], what: str, timeout_s: float | None = START_TIMEOUT_S
    ) -> bool:
        """Wait for `goal`; False: told to stop meanwhile. Raises why a process was given up."""
        tasks = [asyncio.create_task(goal), asyncio.create_task(self._stopping.wait())]
        await asyncio.wait(
            [*tasks, self._failure], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        reached, stopping = (task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        if self._failure.done():
            self._failure.result()
        if not reached and not stopping:
            raise MooncakeError(f"not within {timeout_s} s: {what}")
        return reached and not stopping

    async def _healthy(self) -> None:
        while True:
            try:
                status, _ = await asyncio.to_thread(get_json, self.endpoint, "/health")
            except MooncakeError:
                status = 0
            if status == 200:
                return
            await asyncio.sleep(0.1)

    async def _keep(self, child: Child) -> None:
        """Run one process again and again until everything stops or it is given up."""
        while not self._stopping.is_set():
            known = {each.part.name: each.addresses for each in self.children if each.addresses}
            served_s = await child.run(
                flags(child.part, self._config, known),
                started=self._note,
                serves=lambda: self._audience.restarted(child) if self._is_up else None,
            )
            if self._stopping.is_set():
                return
            delay_s = self._decide(child, served_s)
            if delay_s is None:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _decide(self, child: Child, served_s: float | None) -> float | None:
        """Return the seconds until the next start of a process that has ended, or None."""
        name, last = child.part.name, child.tail[-1] if child.tail else ""
        if not self._is_up and served_s is None and last.startswith("mooncake: "):
            self._fail(f"{name}: {last.removeprefix('mooncake: ')}")
            return None
        delay_s = child.starts.ended(served_s)
        if delay_s is not None:
            self._audience.say(f"{name} {child.ending}; starting it again in {delay_s:.1f} s")
            return delay_s
        child.is_given_up = True
        lines = "\n".join(f"  {line}" for line in child.tail)
        message = (
            f"{name} {child.ending} before it served, {MAX_FAILED_STARTS} times in a row. "
            f"Its last lines:\n{lines}"
        )
        if self._is_up and not all(each.is_given_up for each in self._of_roles(child.part.role)):
            self._audience.say(f"{message}\ngoing on without it")
        else:
            self._fail(message)
        return None

    def _fail(self, message: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(MooncakeError(message))

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        error = keeper.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _note(self) -> None:
        try:
            self._state.write(child.pid for child in self.children if child.pid)
        except OSError as error:  # a full disk ends no service
            self._audience.say(f"cannot note which processes run: {error}")
        if self._stopping.is_set():
            for child in self.children:
                child.send(signal.SIGTERM)

    async def _end_all(self) -> None:
        self._stopping.set()
        for roles in STOP_ORDER:
            await self._end([child for child in self._of_roles(*roles) if child in self._keepers])
        if self._failure.done():
            self._failure.exception()  # retrieved, so that the loop does not report it

    async def _end(self, children: list[Child]) -> None:
        if not children:
            return
        for child in children:
            child.send(signal.SIGKILL if self._is_hurried else signal.SIGTERM)
        keepers = [self._keepers[child] for child in children]
        _, late = await asyncio.wait(keepers, timeout=GRACE_S)
        for child in children:
            child.send(signal.SIGKILL)
        if late:
            await asyncio.wait(late)

    def _of_roles(self, *roles: str) -> list[Child]:
        return [child for child in self.children if child.part.role in roles]

    def _child(self, part: Part) -> Child:
        return Child(part, lambda line: self._audience.log(part.name, line))


async def _all_serve(children: Iterable[Child]) -> None:
    for child in children:
        await child.serving.wait()
