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
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # A name that has both kinds is taken for its IPv4 address.
        family, *_, where = min(found, key=lambda each: each[0] != socket.AF_INET)
        return socket.create_server(where, family=family, backlog=512)
    except (OSError, OverflowError) as error:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        problem = "is in use; name another port, or 0 for any" if in_use else f"cannot be: {error}"
        raise ConfigError(f"--{key}: {address} {problem}") from error


def address_of(sock: socket.socket) -> str:
    """Return "host:port" that `sock` is bound to; a link-local host with its interface."""
    host, port, *more = sock.getsockname()
    zone = more[1] if more else 0
    if zone and "%" not in host:
        host = f"{host}%{socket.if_indextoname(zone)}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
