"""A target in a process of its own on this host, for `--loopback`.

    python -m mooncake_core.te_bench.loopback '{"transfer": {...}}'

The child prints its address as JSON, or the problem why there is none, and serves until its
standard input ends, which it does when the parent ends, whichever way.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import msgspec

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError, MooncakeError
from mooncake_core.te_bench.target import Target

_LISTEN = "127.0.0.1:0"


class _Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The child's only line."""

    address: str = ""
    problem: str = ""


class LoopbackTarget:
    """A child process that is a target. `with` ends it.

    Raises:
        ConfigError: it cannot serve; the message says why.
    """

    def __init__(self, config: TransferConfig) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mooncake_core.te_bench.loopback", _encode(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A Ctrl-C at the terminal is for the parent, which ends the child.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        said = (
            self._process.stdout.readline() or b'{"problem": "the target ended before it served"}'
        )
        greeting = msgspec.json.decode(said, type=_Greeting)
        self.address = greeting.address
        """host:port of the control connection."""
        if not self.address:
            self.close()
            raise ConfigError(greeting.problem)

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

    def __exit__(self, *_: object) -> None:
        self.close()


def _encode(config: TransferConfig) -> str:
    return msgspec.json.encode(config).decode()


def _say(greeting: _Greeting) -> None:
    print(msgspec.json.encode(greeting).decode(), flush=True)


def main(encoded: str) -> None:
    """Be the child."""
    try:
        target = Target(_LISTEN, msgspec.json.decode(encoded, type=TransferConfig))
    except MooncakeError as error:
        _say(_Greeting(problem=str(error)))
        return
    _say(_Greeting(address=target.address))
    sys.stdin.buffer.read()
    target.close()


if __name__ == "__main__":
    main(sys.argv[1])
