"""A TCP relay whose connections can be stalled, slow or faulty, and nobody is told."""

from __future__ import annotations

import contextlib
import socket
import threading

_PIECE = 1 << 16
_BUFFER = 1 << 16  # of each socket: what is on its way is not yet read, or already there
_SMALL = 1 << 12


class Flow:
    """One direction of all connections."""

    def __init__(self):
        self.may_pass = threading.Event()
        self.may_pass.set()
        self.is_closed, self.turn = threading.Event(), threading.Lock()
        self.bytes_per_s = float("inf")
        self.faults = 0.0  # so many pieces more change on their way
        self.is_held_after_faults = False  # nothing passes after the last of them

    def pass_on(self, data):
        """Return what arrives of it, when it may."""
        self._await_turn(len(data))
        if self.faults > 0 and len(data) >= _SMALL:
            self.faults -= 1
            if self.faults == 0 and self.is_held_after_faults:
                self.may_pass.clear()
            middle = len(data) // 2
            return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        return data

    def _await_turn(self, size):
        self.may_pass.wait()
        if size < _SMALL or self.bytes_per_s == float("inf"):
            return
        with self.turn:
            self.is_closed.wait(size / self.bytes_per_s)


class Relay:
    """Passes everything on to an address, while it is not stalled."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = host, int(port)
        self.questions, self.answers = Flow(), Flow()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "{}:{}".format(*self.listener.getsockname())
        self.sockets, self.threads = [self.listener], []
        self._spawn(self._accept)

    def stall(self):
        """Nothing passes until `resume`: whoever connects is accepted and not answered."""
        self.questions.may_pass.clear()
        self.answers.may_pass.clear()

    def hold_answers(self):
        """Questions pass, answers do not until `resume`."""
        self.answers.may_pass.clear()

    def hold_questions(self):
        """Answers pass, questions do not until `resume`."""
        self.questions.may_pass.clear()

    def resume(self):
        """What was held back goes on."""
        self.questions.may_pass.set()
        self.answers.may_pass.set()

    def slow_answers(self, bytes_per_s):
        """Let answers that are not small pass at this rate in all from now on."""
        self.answers.bytes_per_s = bytes_per_s

    def _spawn(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.sockets.append(near)
                with contextlib.suppress(OSError):
                    self._join(near, self._connect())
                    continue
                near.shutdown(socket.SHUT_RDWR)  # as if it had been refused

    def _connect(self):
        far = socket.socket()
        self.sockets.append(far)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        far.connect(self.target)
        return far

    def _join(self, near, far):
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._spawn(self._pass, near, far, self.questions)
        self._spawn(self._pass, far, near, self.answers)

    def _pass(self, source, target, flow):
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                target.sendall(flow.pass_on(data))
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        """End all connections."""
        self.resume()
        for flow in (self.questions, self.answers):
            flow.is_closed.set()
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for one in self.sockets:
            one.close()
