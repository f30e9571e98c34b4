"""A child process that is spoken to in lines of JSON, and ended whatever happens."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys

CLOSE_S = 20.0


class Child:
    """`python -m MODULE ARGUMENTS`. `with` ends it.

    It sees its standard input end when this process ends, whichever way.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A Ctrl-C at the terminal is for the parent, which ends the child.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def tell(self, line: bytes) -> None:
        """Write a line; to a child that is gone nothing is told, and hear() says so."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def hear(self) -> bytes:
        """Return its next line, b"" if it ended; blocks."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def interrupt(self) -> None:
        """Send it SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Close its standard input; does not wait."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """End it and wait, at most 20 s before it is killed. Idempotent."""
        self.end()
        try:
            self._process.wait(timeout=CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
