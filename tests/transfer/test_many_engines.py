"""Very many transfers, and very many engines: sockets, ports and identities."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import socket
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest
from msgspec import msgpack

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import PeerUnreachable
from mooncake_core.transfer import TransferEngine
from tests.transfer import wire
from tests.transfer.peer import Peer, numbers

ENGINES, ROUNDS = 32, 3
DEFAULT_PORTS = (7400, 7401, 8000)
TIME_WAIT = 6


def socket_states(endpoint: str) -> list[int]:
    """The kernel's states of this host's connections from or to a port."""
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in list(table)[1:]]
    return [int(row[3], 16) for row in rows if row[1].endswith(port) or row[2].endswith(port)]


@pytest.mark.parametrize("transport", ["tcp"])
def test_twenty_thousand_small_transfers_use_a_few_sockets(
    engine: TransferEngine, start_peer: Callable[..., Peer]
) -> None:
    peer = start_peer()
    endpoint = peer.call("endpoint")
    remote = engine.open_segment(endpoint, peer.call("create", 4096))
    with engine.register(bytearray(4096)) as buffer:
        batch = numbers(buffer.address), numbers(0), numbers(64)
        for _ in range(10_000):
            remote.write(*batch)
            remote.read(*batch)
        states = socket_states(endpoint)
        assert states.count(TIME_WAIT) < 50
        assert len(states) < 50
        peer.kill()
        again = start_peer(listen=endpoint)
        with pytest.raises(PeerUnreachable):
            remote.write(*batch)
        remote = engine.open_segment(endpoint, again.call("create", 4096))
        remote.write(*batch)


@pytest.mark.parametrize("transport", ["tcp"])
def test_engines_that_come_and_go_leave_few_sockets_behind(peer: Peer) -> None:
    endpoint, segment_id = peer.call("endpoint"), peer.call("create", 4096)
    for _ in range(200):
        engine = TransferEngine(TransferConfig(same_host="network"))
        remote = engine.open_segment(endpoint, segment_id)
        with engine.register(bytearray(64)) as buffer:
            remote.write(numbers(buffer.address), numbers(0), numbers(64))
        engine.close()
    assert socket_states(endpoint).count(TIME_WAIT) < 50


def start_and_reach_others(pipe: Connection) -> None:
    """An engine a round: tell where it is, and read what each other one holds."""
    for number in iter(pipe.recv, None):
        engine = TransferEngine(TransferConfig(same_host=random.choice(["shm", "network"])))
        segment = engine.create_segment(4096)
        segment.buffer[:8] = number.to_bytes(8, "little")
        pipe.send((engine.endpoint, engine.peer_id, segment.id))
        others = pipe.recv()
        local = engine.create_segment(4096)
        for index, (endpoint, _, segment_id) in others.items():
            remote = engine.open_segment(endpoint, segment_id)
            remote.read(numbers(local.address), numbers(0), numbers(8))
            assert int.from_bytes(local.buffer[:8], "little") == index
        pipe.send("read them all")
        assert pipe.recv() == "close"
        engine.close()


@contextlib.contextmanager
def processes(count: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.transfer.test_many_engines"])
    pipes, started = [], []
    for _ in range(count):
        pipe, other = context.Pipe()
        process = context.Process(target=start_and_reach_others, args=(other,), daemon=True)
        process.start()
        other.close()
        pipes.append(pipe)
        started.append(process)
    try:
        yield pipes
        for pipe in pipes:
            pipe.send(None)
        for process in started:
            process.join(20)
            assert process.exitcode == 0
    finally:
        for pipe, process in zip(pipes, started, strict=True):
            pipe.close()
            process.kill()
            process.join()
            process.close()


def told(pipe: Connection) -> object:
    assert pipe.poll(60), "an engine does not answer"
    return pipe.recv()


def test_thirty_two_engines_start_at_once_and_reach_each_other() -> None:
    """No port is chosen twice, whatever the usual ports are used for."""
    with contextlib.ExitStack() as held, processes(ENGINES) as pipes:
        for port in DEFAULT_PORTS:
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
        for _ in range(ROUNDS):
            for number, pipe in enumerate(pipes):
                pipe.send(number)
            known = {number: told(pipe) for number, pipe in enumerate(pipes)}
            for which in range(3):  # endpoints, peer ids, segment ids
                assert len({one[which] for one in known.values()}) == ENGINES
            for number, pipe in enumerate(pipes):
                pipe.send({at % ENGINES: known[at % ENGINES] for at in range(number, number + 8)})
            assert {told(pipe) for pipe in pipes} == {"read them all"}
            for pipe in pipes:
                pipe.send("close")


@pytest.mark.parametrize("transport", ["shm"])
def test_who_asks_for_another_engine_is_told_so(engine: TransferEngine) -> None:
    """On both sockets; the identity is random, and the port says nothing."""
    host, port = engine.endpoint.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(wire.hello(1))
        engine_id, _, unix_name, *_ = msgpack.decode(wire.receive_frame(link).body)
    for link in (socket.create_connection((host, int(port)), timeout=10), unix_link(unix_name)):
        with link:
            link.sendall(wire.hello(1, expected=engine_id ^ 1))
            answer = wire.Frame(*wire.HEADER.unpack_from(packet := link.recv(1 << 16))[2::2])
            assert answer.kind == wire.ERROR
            code, message = msgpack.decode(packet[wire.HEADER.size :])
            assert code == wire.WRONG_PEER and "another engine" in message
            assert link.recv(1) == b""


def unix_link(name: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(10)
    link.connect("\0" + name)
    return link
