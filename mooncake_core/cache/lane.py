"""A thread that runs tasks in order behind a bounded queue: one direction of copying."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

Task = Callable[[], None]


class Lane:
    """Runs tasks one after the other; after a failure it skips the rest.

    `submit` may be called from any thread until `close`. Nothing of a lane outlives `done`.

    Args:
        name: of the thread.
        depth: tasks that may wait; `submit` blocks at more.
    """

    def __init__(self, name: str, depth: int) -> None:
        self.done: Future[None] = Future()
        """Set when all tasks have run or were skipped; holds the first failure."""
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._failure: BaseException | None = None
        self._is_closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def failure(self) -> BaseException | None:
        """Why tasks are skipped; None while all is well."""
        return self._failure

    @property
    def backlog(self) -> int:
        """How many tasks wait, about."""
        return self._tasks.qsize()

    def submit(self, task: Task) -> None:
        """Run `task` after all before it. Blocks while the queue is full."""
        self._room.acquire()
        self._tasks.put(task)

    def stop(self, reason: BaseException) -> None:
        """Skip what has not begun."""
        self._failure = self._failure or reason

    def close(self) -> None:
        """Promise that nothing more is submitted. Never blocks."""
        if not self._is_closed:
            self._is_closed = True
            self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._room.release()
            if self._failure is not None:
                continue
            try:
                task()
            except BaseException as error:  # handed to whoever reads `done`
                self._failure = error
        if self._failure is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(self._failure)
