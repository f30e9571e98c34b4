"""Addresses that this process listens on."""

from __future__ import annotations

import errno
import os
import socket

from mooncake_core.errors import ConfigError
from mooncake_core.topology import known_addresses, read_host

IDLE_S = 75.0
"""How long an HTTP connection may say nothing whole before it is closed.

Whoever opens connections and sends half a request on each would otherwise hold them for an hour.
"""


def bind(address: str, key: str) -> socket.socket:
    """Return a listening socket for "host:port", or raise ConfigError: "key: problem"."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # A name that has both kinds is taken for its IPv4 address.
        family, *_, where = min(found, key=lambda each: each[0] != socket.AF_INET)
        return socket.create_server(where, family=family, backlog=512)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"{key}: {cannot_listen(address, error)}") from error


def cannot_listen(address: str, error: Exception) -> str:
    """Return what an error of listening on an address says, with what would be right."""
    number = getattr(error, "errno", None) or 0  # negative: the resolver's
    problem = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or error
    return explained(f"listen on {address}: {problem}")


def explained(problem: str) -> str:
    """Return why this process cannot listen, with what would be right.

    Args:
        problem: as the system says it, with its text of the error.
    """
    if _says(problem, errno.EADDRNOTAVAIL):
        return f"{problem}; no interface of this host has it: {known_addresses(read_host())}"
    if _says(problem, errno.EADDRINUSE):
        return f"{problem}; use another port, or 0 for any that is free"
    if _says(problem, errno.EACCES):
        return f"{problem}; ports below 1024 are for privileged processes, use a higher one"
    return problem


def _says(problem: str, error: int) -> bool:
    return os.strerror(error) in problem


def address_of(sock: socket.socket) -> str:
    """Return "host:port" that `sock` is bound to; a link-local host with its interface."""
    host, port, *more = sock.getsockname()
    zone = more[1] if more else 0
    if zone and "%" not in host:
        host = f"{host}%{socket.if_indextoname(zone)}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
