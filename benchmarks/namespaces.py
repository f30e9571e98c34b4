"""Two network namespaces of this machine, joined by links whose speed is set. Needs root.

Each link is a pair of virtual interfaces (veth) with a token bucket filter (tbf) at both ends. A
link that is cut loses what is sent, in silence, as a pulled cable does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess


def missing() -> str:
    """Return what this machine lacks; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (package iproute2)"
    try:
        with Links(1, 100):
            return ""
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"


class Links:
    """`count` links of `rate_mbit` megabits a second each way between `here` and `there`.

    Link i has the addresses here_addresses[i] and there_addresses[i], on a subnet of its own.
    """

    def __init__(self, count: int, rate_mbit: float) -> None:
        self.here, self.there = (f"mooncake-{os.getpid()}-{side}" for side in ("a", "b"))
        self.here_addresses = [f"10.213.{i}.1" for i in range(count)]
        self.there_addresses = [f"10.213.{i}.2" for i in range(count)]
        try:
            for namespace in (self.here, self.there):
                _run("ip", "netns", "add", namespace)
                self._inside(namespace, "ip", "link", "set", "lo", "up")
            for link in range(count):
                self._join(link)
                self.shape(link, rate_mbit)
        except subprocess.CalledProcessError:
            self.close()
            raise

    def shape(self, link: int, rate_mbit: float) -> None:
        """Set a link's speed, both ways."""
        rate = ("rate", f"{rate_mbit}mbit", "burst", "64kb", "latency", "20ms")
        for namespace in (self.here, self.there):
            shaped = ("qdisc", "replace", "dev", f"link{link}", "root", "tbf", *rate)
            self._inside(namespace, "tc", *shaped)

    def cut(self, link: int) -> None:
        """Let nothing through any more."""
        self._inside(self.there, "ip", "link", "set", f"link{link}", "down")

    def restore(self, link: int) -> None:
        """Let it work again."""
        self._inside(self.there, "ip", "link", "set", f"link{link}", "up")

    def command(self, namespace: str, *command: str) -> list[str]:
        """Return a command that runs another one inside."""
        return ["ip", "netns", "exec", namespace, *command]

    def close(self) -> None:
        """Remove everything; processes that still run inside keep their namespace."""
        for namespace in (self.here, self.there):
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "delete", namespace)

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self, link: int) -> None:
        name = f"link{link}"
        ends = ("type", "veth", "peer", "name", name, "netns", self.there)
        self._inside(self.here, "ip", "link", "add", name, *ends)
        for namespace, addresses in (
            (self.here, self.here_addresses),
            (self.there, self.there_addresses),
        ):
            self._inside(namespace, "ip", "address", "add", f"{addresses[link]}/24", "dev", name)
            self._inside(namespace, "ip", "link", "set", name, "up")

    def _inside(self, namespace: str, *command: str) -> None:
        _run(*self.command(namespace, *command))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
