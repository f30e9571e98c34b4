"""A child process that is spoken to in lines of JSON, and ended whatever happens."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading

CLOSE_S = 20.0


class Child:
    """`python -m MODULE ARGUMENTS`. `with` ends it.

    It sees its standard input end when this process ends, whichever way.

    Args:
        module: to be run.
        arguments: of its command line.
        close_s: how long it may take to end before it is killed.
    """

    def __init__(self, module: str, *arguments: str, close_s: float = CLOSE_S) -> None:
        self._close_s = close_s
        self._reader: threading.Thread | None = None
        self._last = b""
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

    @property
    def last_words(self) -> bytes:
        """The last line that it said after end(), b"" if none; once close() has returned."""
        return self._last

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
        """Close its standard input; does not wait. Idempotent.

        What it still says is taken in: nobody else hears it any more, and a child whose words fill
        the pipe would hang.
        """
        if self._reader is not None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._reader = threading.Thread(target=self._read_rest, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """End it and wait; when its time is over or a signal interrupts, kill it. Idempotent."""
        self.end()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=self._close_s)
        finally:
            self._process.kill()  # does nothing to one that has ended
            self._process.wait()
            assert self._reader is not None and self._process.stdout is not None
            self._reader.join()
            self._process.stdout.close()

    def _read_rest(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = line

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
