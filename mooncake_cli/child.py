"""One process of `mooncake up`: started, listened to, signalled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mooncake_cli.plan import HTTP_ADDRESS, Addresses, Part, Starts

TAIL_LINES = 20


class Child:
    """A part of the cluster, and the process that is it at present.

    Args:
        part: which.
        log: takes each line that the process writes.
    """

    def __init__(self, part: Part, log: Callable[[str], None]) -> None:
        self.part = part
        self.addresses: Addresses = {}
        """What it listens on, or last did."""
        self.serving = asyncio.Event()
        self.starts = Starts()
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        """The last lines of its log."""
        self.is_given_up = False
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the running process; 0 if there is none."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    @property
    def ending(self) -> str:
        """How the last process ended."""
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def send(self, number: signal.Signals) -> None:
        """Signal the process if it runs."""
        if self.pid and self._process is not None:
            self._process.send_signal(number)

    def report(self) -> dict[str, Any]:
        """Return what `--json` says of it."""
        return {
            "name": self.part.name,
            "role": self.part.role,
            "pid": self.pid,
            "address": self.addresses.get(HTTP_ADDRESS.get(self.part.role, "http"), ""),
            "addresses": dict(self.addresses),
        }

    async def run(
        self, flags: Sequence[str], *, started: Callable[[], None], serves: Callable[[], None]
    ) -> float | None:
        """Run one process to its end.

        Args:
            flags: of its command.
            started: called when there is a process.
            serves: called when it says that it serves.

        Returns:
            How long it served, in seconds; None if it never did.
        """
        read_fd, write_fd = os.pipe()
        try:
            self._process = await self._spawn(write_fd, flags)
        finally:
            os.close(write_fd)
        started()
        logs = asyncio.create_task(self._copy_log(self._process))
        served_from_s = None
        if bound := await _first_line(read_fd):
            served_from_s = time.monotonic()
            self.addresses = json.loads(bound)
            self.serving.set()
            serves()
        await self._process.wait()
        await logs
        self.serving.clear()
        return None if served_from_s is None else time.monotonic() - served_from_s

    async def _spawn(self, write_fd: int, flags: Sequence[str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mooncake_cli", self.part.role),
            *(f"--ready-fd={write_fd}", f"--parent={os.getpid()}"),
            *flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(write_fd,),
            # Its own session: a Ctrl-C at the terminal is for `up`, which stops all in order.
            start_new_session=True,
        )

    async def _copy_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                raw = await process.stdout.readline()
            except ValueError:  # the line is beyond the stream's limit; its rest follows
                continue
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip("\n")
            self.tail.append(line)
            self._log(line)


async def _first_line(read_fd: int) -> bytes:
    """Return the first line from a pipe; b"" when its other end is closed without one."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(read_fd, "rb")
    )
    try:
        return await stream.readline()
    finally:
        transport.close()
