"""IPv4 addresses as the kernel itself tells them, since no file has them with their interface."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

# Source: include/uapi/linux/rtnetlink.h, netlink.h, if_addr.h.
_GET_ADDRESSES, _ADDRESS, _DONE, _ERROR = 22, 20, 3, 2
_REQUEST_DUMP = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=IHHII")
_ADDRESS_HEADER = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")


def ipv4_addresses() -> list[tuple[str, str]] | None:
    """Return (interface, address/prefix) of all of them; None: the kernel does not answer."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
            kernel.settimeout(1)
            body = _ADDRESS_HEADER.pack(socket.AF_INET, 0, 0, 0, 0)
            size = _HEADER.size + len(body)
            kernel.send(_HEADER.pack(size, _GET_ADDRESSES, _REQUEST_DUMP, 1, 0) + body)
            return list(_answers(kernel))
    except (OSError, ValueError, struct.error):
        return None


def _answers(kernel: socket.socket) -> Iterator[tuple[str, str]]:
    while True:
        data = kernel.recv(1 << 16)
        while data:
            size, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR or size < _HEADER.size:
                raise OSError("the kernel refused to list addresses")
            if kind == _ADDRESS:
                yield _address(data[_HEADER.size : size])
            data = data[_aligned(size) :]


def _address(message: bytes) -> tuple[str, str]:
    _, prefix, _, _, index = _ADDRESS_HEADER.unpack_from(message)
    attributes = dict(_attributes(message[_ADDRESS_HEADER.size :]))
    # Of a point-to-point link IFA_ADDRESS is the other end.
    packed = attributes.get(_IFA_LOCAL) or attributes[_IFA_ADDRESS]
    return socket.if_indextoname(index), f"{ipaddress.IPv4Address(packed)}/{prefix}"


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        size, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : size]
        data = data[max(_aligned(size), _ATTRIBUTE.size) :]


def _aligned(size: int) -> int:
    return (size + 3) & ~3
