"""A TCP relay whose connections can be stalled: whoever connects is accepted and not answered."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Passes everything on to an address, while it is not stalled."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = host, int(port)
        self.flows = threading.Event()
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "{}:{}".format(*self.listener.getsockname())
        self.sockets, self.threads = [self.listener], []
        self._spawn(self._accept)

    def stall(self):
        """Nothing passes until `resume`, and nobody is told."""
        self.flows.clear()

    def resume(self):
        """What was held back goes on."""
        self.flows.set()

    def _spawn(self, work, *sockets):
        thread = threading.Thread(target=work, args=sockets)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.sockets += [near, far]
                self._spawn(self._pass, near, far)
                self._spawn(self._pass, far, near)

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.flows.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        """End all connections."""
        self.resume()
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for one in self.sockets:
            one.close()
