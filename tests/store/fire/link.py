"""A connection to a master that speaks in the structs of tests/store/wire.py."""

from __future__ import annotations

import socket
import struct

from msgspec import msgpack

from tests.store import wire

_HEADER = struct.Struct("<HBBIQ")
_MAGIC, _VERSION, _ANSWER = 0x4D43, 1, 0x80
PATIENCE_S = 30.0


class Link:
    """Asks one question at a time. Not for several threads."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.requests = 0

    def ask(self, message, number=None, answer=None):
        """Return the master's answer; None to what it does not answer."""
        if number is None:
            number, answer = wire.ANSWERS[type(message)]
        self.requests += answer is not None
        body = msgpack.encode(message)
        request = self.requests if answer is not None else 0
        self.socket.sendall(_HEADER.pack(_MAGIC, _VERSION, number, len(body), request) + body)
        if answer is None:
            return None
        *_, kind, length, _ = _HEADER.unpack(self._receive(_HEADER.size))
        body = self._receive(length)
        assert kind == number | _ANSWER, f"the master answered {body!r} to {message}"
        return msgpack.decode(body, type=answer)

    def _receive(self, count):
        body = bytearray()
        while len(body) < count:
            piece = self.socket.recv(count - len(body))
            assert piece, "the master closed the connection"
            body += piece
        return bytes(body)

    def close(self):
        """Leave without a word."""
        self.socket.close()


class Watcher:
    """Looks at the store through the master's eyes, with a session of its own when it needs one."""

    def __init__(self, address):
        self.link = Link(address)
        self.session = 0

    def stats(self):
        """Return what the master says about everything."""
        return self.link.ask(wire.One(), wire.STATS, wire.Stats)

    def nodes_of(self, key):
        """Return the ids of the nodes on which copies of the key are."""
        reply = self._lookup(key)
        if not reply.is_known:
            self.session = self.link.ask(wire.Hello(0, peer_id=1)).session
            reply = self._lookup(key)
        if reply.lease:
            self.link.ask(wire.Release(self.session, [reply.lease]))
        return [node for node, _ in reply.places()]

    def _lookup(self, key):
        return self.link.ask(wire.Lookup(self.session, False, False, [], [key.encode()]))

    def close(self):
        """End the session."""
        self.link.ask(wire.One(self.session), wire.GOODBYE)
        self.link.close()
