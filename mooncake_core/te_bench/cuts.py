"""Breaking this process's own TCP connections from outside the engine, the way networks do.

A connection is found by its two ends among the process's descriptors. To *cut* it ends it for both
sides. To *silence* it has the kernel drop whatever arrives on it, so that nothing is heard of the
other side any more, as of a host whose cable was pulled: a socket filter needs no privilege.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator

from mooncake_core.transfer.statistics import PathStatistics

# Source: include/uapi/asm-generic/socket.h and include/uapi/linux/bpf_common.h; a program of one
# instruction, BPF_RET | BPF_K with 0: keep no byte of any packet.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DROP_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))

_LOOK_S = 0.002


def cut(path: PathStatistics) -> int:
    """End every connection of this process on a path; return how many there were."""
    count = 0
    for connection in _connections(path):
        with connection, contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
            count += 1
    return count


class Silence:
    """While it lasts nothing is heard on a path, neither on old connections nor on new ones."""

    def __init__(self, path: PathStatistics) -> None:
        self._path = path
        self._over = threading.Event()
        self._silence()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Let the connections that are still there hear again. Idempotent."""
        self._over.set()
        self._thread.join()
        for connection in _connections(self._path):
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._silence()

    def _silence(self) -> None:
        program = struct.pack("HL", 1, ctypes.addressof(_DROP_ALL))
        for connection in _connections(self._path):
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _connections(path: PathStatistics) -> Iterator[socket.socket]:
    """Yield a duplicate of each connection on a path; shared with the engine until it is closed."""
    for name in os.listdir("/proc/self/fd"):
        connection = _duplicate(int(name))
        if connection is None:
            continue
        if _is_on(connection, path):
            yield connection
        else:
            connection.close()


def _duplicate(fd: int) -> socket.socket | None:
    try:
        if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
            return None
        return socket.socket(fileno=os.dup(fd))
    except OSError:  # closed meanwhile
        return None


def _is_on(connection: socket.socket, path: PathStatistics) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        here, there = connection.getsockname(), connection.getpeername()
    except OSError:  # not connected
        return False
    host, _, port = path.remote.rpartition(":")
    if (there[0], there[1]) != (host.strip("[]"), int(port)):
        return False
    return not path.local or here[0] == path.local.strip("[]")
