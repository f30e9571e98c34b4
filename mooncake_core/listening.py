"""Addresses that this process listens on."""

from __future__ import annotations

import errno
import socket

from mooncake_core.errors import ConfigError

IDLE_S = 75.0
"""How long an HTTP connection may say nothing whole before it is closed.

Whoever opens connections and sends half a request on each would otherwise hold them for an hour.
"""


def bind(address: str, key: str) -> socket.socket:
    """Return a listening socket for "host:port", or raise ConfigError that starts with `key`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return socket.create_server(
            (host, int(port)),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=512,
        )
    except (OSError, OverflowError) as error:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        problem = "is in use; name another port, or 0 for any" if in_use else f"cannot be: {error}"
        raise ConfigError(f"--{key}:{key}: {address} {problem}") from error


def address_of(sock: socket.socket) -> str:
    """Return "host:port" that `sock` is bound to."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
