"""Whatever is said on whatever port, everybody else is served, and nothing piles up.

The ports are found, not listed: all that the processes of a cluster listen on, on TCP and Unix
sockets. The cluster lives on IPv6 alone.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mooncake_cli.http import get_json
from tests.cluster.daemons import Daemon, run_daemons
from tests.cluster.harness import eventually

Daemons = dict[str, Daemon]

Caller = tuple[int, int, Any]
"""Family, kind and address of a socket that listens."""
LISTENING, ACCEPTS = "0A", 0x10000
"""In the kernel's tables: TCP_LISTEN, and __SO_ACCEPTCON among the flags of a Unix socket."""
ROUNDS = 400
HALF_OPEN = 40


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with run_daemons(tmp_path_factory.mktemp("daemons"), "[::1]") as daemons:
        yield daemons


def answers(daemons: Daemons) -> str:
    """Ask for a chat; its words do not matter, the model is random."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"http://{daemons['conductor'].addresses['http']}/v1/chat/completions",
        data=json.dumps(body | {"temperature": 0}).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def sockets_of(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(entry.readlink()))
    return {name[8:-1] for name in found if name.startswith("socket:[")}


def rows_of(table: str) -> list[list[str]]:
    return [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]


def tcp_sockets(daemon: Daemon) -> list[Caller]:
    own = sockets_of(daemon.pid)
    return [
        (family, socket.SOCK_STREAM, (host, int(row[1][-4:], 16)))
        for table, family, host in (
            ("tcp", socket.AF_INET, "127.0.0.1"),
            ("tcp6", socket.AF_INET6, "::1"),
        )
        for row in rows_of(table)
        if row[3] == LISTENING and row[9] in own
    ]


def unix_sockets(daemon: Daemon) -> list[Caller]:
    own = sockets_of(daemon.pid)
    return [
        (socket.AF_UNIX, int(row[4], 16), "\0" + row[7][1:])
        for row in rows_of("unix")
        if len(row) > 7 and row[6] in own and int(row[3], 16) & ACCEPTS
    ]


def test_a_cluster_lives_on_ipv6_alone(daemons: Daemons) -> None:
    """The conductor's own engine lends nothing, and stays on loopback."""
    families = {
        role: sorted(family for family, *_ in tcp_sockets(daemon))
        for role, daemon in daemons.items()
    }
    v4, v6 = socket.AF_INET, socket.AF_INET6
    both = {"conductor": [v4, v6], "store": [v6]}
    assert families == {role: both.get(role, [v6, v6]) for role in daemons}
    for daemon in daemons.values():
        assert all(address.startswith("[::1]:") for address in daemon.addresses.values())
    assert answers(daemons) == answers(daemons)


def insults(rng: random.Random) -> bytes:
    """Noise, frames of ours with noise in them or lengths of up to 4 GiB, HTTP that is none."""
    noise = rng.randbytes(rng.randrange(300))
    length = rng.choice([len(noise), 0xFFFFFFFF, 64 << 20, rng.getrandbits(32)])
    frame = struct.pack("<HBBIQ", 0x4D43, 1, rng.randrange(24), length, rng.getrandbits(64))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "
    return rng.choice(
        [
            noise,
            frame + noise,
            frame + noise,
            frame[: rng.randrange(16)],
            head + b"4294967296\r\n\r\n" + noise,
            head + b"-1\r\n\r\n",
            b"GET /" + noise + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 70_000,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
        ]
    )


def insult(link: socket.socket, rng: random.Random) -> None:
    with link, contextlib.suppress(OSError):
        for _ in range(rng.randrange(1, 4)):
            link.sendall(insults(rng))
        if rng.random() < 0.3:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def call(caller: Caller) -> socket.socket:
    family, kind, address = caller
    link = socket.socket(family, kind)
    link.settimeout(10)
    link.connect(address)
    return link


@pytest.mark.parametrize("role", ["master", "store", "conductor", "prefill", "decode"])
def test_a_storm_on_every_socket_of_a_daemon_hurts_nobody(daemons: Daemons, role: str) -> None:
    daemon, rng = daemons[role], random.Random(role)
    where = [*tcp_sockets(daemon), *unix_sockets(daemon)]
    assert len(where) == {"store": 2}.get(role, 3)
    expected = answers(daemons)

    def storm() -> None:
        for _ in range(ROUNDS):
            for one in where:
                insult(call(one), rng)
        with contextlib.ExitStack() as half_open:
            for _ in range(HALF_OPEN):
                for one in where:
                    link = half_open.enter_context(call(one))
                    link.sendall(b"\x43")
            started_s = time.monotonic()
            assert answers(daemons) == expected
            assert time.monotonic() - started_s < 20

    before = daemon.descriptors()
    storm()
    eventually(lambda: daemon.descriptors() <= before, 30, "as few descriptors as before")
    rss_kib = daemon.rss_kib()
    storm()
    eventually(lambda: daemon.descriptors() <= before, 30, "as few descriptors as before")
    assert daemon.rss_kib() - rss_kib < 8 << 10
    assert answers(daemons) == expected
    for other in ("master", "conductor", "prefill", "decode"):
        address = daemons[other].addresses["admin" if other == "master" else "http"]
        assert get_json(address, "/health")[0] == 200
