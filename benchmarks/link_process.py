"""A process at one end of the links, driven by lines of JSON: [name, arguments...] -> answer."""

from __future__ import annotations

import array
import hashlib
import json
import random
import socket
import sys
import threading
import time
from typing import Any

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import MooncakeError
from mooncake_core.transfer import RemoteSegment, TransferEngine

CHUNK = 1 << 20


class End:
    """An engine with a segment of `size_bytes`, and plain sockets to compare with."""

    def __init__(self, addresses: list[str], size_bytes: int) -> None:
        config = TransferConfig(
            listen=f"{addresses[0]}:0", addresses=tuple(addresses[1:]), same_host="network"
        )
        self.addresses = addresses
        self.engine = TransferEngine(config)
        self.segment = self.engine.create_segment(size_bytes)
        self.segment.buffer[:] = random.Random(addresses[0]).randbytes(size_bytes)
        self.remote: RemoteSegment | None = None
        self.listeners = [socket.create_server((address, 0)) for address in addresses]
        for listener in self.listeners:
            threading.Thread(target=self._sink, args=(listener,), daemon=True).start()
        self._ending = threading.Event()
        self._log: list[tuple[float, dict[str, int]]] = []
        self._error = ""
        self._thread: threading.Thread | None = None

    def about(self) -> list[Any]:
        """Return the endpoint, the segment's id, and the ports of the plain sockets."""
        ports = [listener.getsockname()[1] for listener in self.listeners]
        return [self.engine.endpoint, self.segment.id, ports]

    def open(self, endpoint: str, segment_id: int) -> str:
        """Open the other end's segment; return the transport."""
        self.remote = self.engine.open_segment(endpoint, segment_id)
        return self.remote.transport

    def move(self, op: str, total_bytes: int, timeout_s: float = 60) -> float:
        """Return the seconds that one batch takes."""
        assert self.remote is not None
        batch = (
            array.array("Q", [self.segment.address]),
            array.array("Q", [0]),
            array.array("Q", [total_bytes]),
        )
        started_s = time.monotonic()
        (self.remote.read if op == "read" else self.remote.write)(*batch, timeout_s=timeout_s)
        return time.monotonic() - started_s

    def digest(self, total_bytes: int) -> str:
        """Return a hash of the first bytes of the segment."""
        return hashlib.blake2b(self.segment.buffer[:total_bytes], digest_size=16).hexdigest()

    def refill(self, seed: int) -> None:
        """Fill the segment with other bytes."""
        self.segment.buffer[:] = random.Random(seed).randbytes(len(self.segment.buffer))

    def paths(self) -> list[dict[str, Any]]:
        """Return what each path has done."""
        fields = ("local", "remote", "state", "read_bytes", "written_bytes", "rate_bytes_per_s")
        return [{name: getattr(path, name) for name in fields} for path in self.engine.statistics()]

    def start(self, op: str, batch_bytes: int) -> None:
        """Move batches until stop(), and note when each has ended and what each path had moved."""
        self._ending.clear()
        self._log, self._error = [], ""
        self._thread = threading.Thread(target=self._keep_moving, args=(op, batch_bytes))
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End what start() began; return what it noted."""
        assert self._thread is not None
        self._ending.set()
        self._thread.join()
        return {"log": self._log, "error": self._error, "now_s": time.monotonic()}

    def now(self) -> float:
        """Return the time by the clock of the notes."""
        return time.monotonic()

    def plain(self, targets: list[list[Any]], seconds: float) -> list[float]:
        """Send on one plain socket a link, all at once; return bytes a second of each."""
        rates = [0.0] * len(targets)

        def send(index: int) -> None:
            host, port = targets[index]
            source = (self.addresses[index], 0)
            with socket.create_connection((host, port), source_address=source) as link:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
                data = bytes(CHUNK)
                end_s = time.monotonic() + seconds
                started_s, sent = time.monotonic(), 0
                while time.monotonic() < end_s:
                    sent += link.send(data)
                link.shutdown(socket.SHUT_WR)
                link.recv(1)  # once all has arrived
                rates[index] = sent / (time.monotonic() - started_s)

        threads = [threading.Thread(target=send, args=(i,)) for i in range(len(targets))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return rates

    def _keep_moving(self, op: str, batch_bytes: int) -> None:
        try:
            while not self._ending.is_set():
                self.move(op, batch_bytes)
                moved = {
                    path.local: path.read_bytes + path.written_bytes
                    for path in self.engine.statistics()
                }
                self._log.append((time.monotonic(), moved))
        except MooncakeError as error:
            self._error = f"{type(error).__name__}: {error}"

    @staticmethod
    def _sink(listener: socket.socket) -> None:
        memory = bytearray(CHUNK)
        while True:
            link, _ = listener.accept()
            with link:
                while link.recv_into(memory):
                    pass
                link.sendall(b".")


def main() -> None:
    end = End(json.loads(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(end, name)(*arguments)), flush=True)
    end.engine.close()


if __name__ == "__main__":
    main()
