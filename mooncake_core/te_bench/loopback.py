"""A target in a process of its own on this host, for `--loopback`.

    python -m mooncake_core.te_bench.loopback '{"transfer": {...}}'

The child prints its address and serves until its standard input ends, which it does when the parent
ends, whichever way.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import TracebackType

import msgspec

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import MooncakeError
from mooncake_core.te_bench.target import Target

_LISTEN = "127.0.0.1:0"


class LoopbackTarget:
    """A child process that is a target. `with` ends it."""

    def __init__(self, config: TransferConfig) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mooncake_core.te_bench.loopback", _encode(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A Ctrl-C at the terminal is for the parent, which ends the child.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().decode().strip()
        """host:port of the control connection."""
        if not self.address:
            self.close()
            raise MooncakeError("the target's process ended before it served")

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def kill(self) -> None:
        """End the process at once, the way a crash does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the process and wait for it. Idempotent."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> LoopbackTarget:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _encode(config: TransferConfig) -> str:
    return msgspec.json.encode(config).decode()


def main(encoded: str) -> None:
    """Be the child."""
    target = Target(_LISTEN, msgspec.json.decode(encoded, type=TransferConfig))
    print(target.address, flush=True)
    sys.stdin.buffer.read()
    target.close()


if __name__ == "__main__":
    main(sys.argv[1])
