"""A cluster as a user starts it: `mooncake up`, driven through its public addresses.

Everything is asked over HTTP or read from /proc; nothing inside the processes is touched.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from prometheus_client.parser import text_string_to_metric_families

MODEL = "smollm2-135m-instruct"


def eventually(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Return the first true result of `condition`, asked again and again until the deadline."""
    deadline = time.monotonic() + timeout_s
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = condition()
        except (OSError, urllib.error.URLError, ValueError, LookupError) as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}; last: {last!r}")


def http_json(url: str) -> Any:
    """GET `url` and decode the JSON that comes back, whatever the status."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)


def metrics(url: str) -> dict[str, float]:
    """Return every sample of `url`/metrics, named with its labels as Prometheus writes them."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


@dataclass
class Member:
    """One process of the cluster."""

    name: str
    role: str
    pid: int
    address: str

    @property
    def url(self) -> str:
        """Base URL of its HTTP server."""
        return f"http://{self.address}"


@dataclass
class Cluster:
    """A running `mooncake up`."""

    process: subprocess.Popen[str]
    endpoint: str
    log: Path
    started: list[Member] = field(default_factory=list)

    @functools.cached_property
    def client(self) -> openai.OpenAI:
        """A client of the public endpoint that never retries by itself; thread-safe."""
        return openai.OpenAI(
            base_url=f"{self.endpoint}/v1", api_key="none", max_retries=0, timeout=120
        )

    def status(self) -> Any:
        """Return the conductor's status."""
        return http_json(f"{self.endpoint}/status")

    def members(self, role: str) -> list[Member]:
        """Return the living processes of a role, by their pids as the kernel has them now."""
        known = {member.name: member for member in self.started}
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                for entry in json.loads(line).get("processes", []):
                    known[entry["name"]] = Member(**{k: entry[k] for k in Member.__annotations__})
        return [member for member in known.values() if member.role == role]

    def member(self, name: str) -> Member:
        """Return one process by name."""
        (found,) = [m for m in self.started if m.name == name]
        return found

    def healthy(self, timeout_s: float = 60) -> None:
        """Wait until the cluster says that it can serve with all its members."""
        want = {
            role: sum(member.role == role for member in self.started)
            for role in ("prefill", "decode")
        }

        def complete() -> bool:
            seen = [member["role"] for member in self.status()["members"]]
            return all(seen.count(role) == number for role, number in want.items())

        eventually(complete, timeout_s, f"all of {want} are registered")


@contextlib.contextmanager
def run_cluster(tmp_path: Path, *flags: str) -> Iterator[Cluster]:
    """Start `mooncake up` on a free port, and stop it with Ctrl-C at the end."""
    log = tmp_path / "up.log"
    command = [sys.executable, "-m", "mooncake_cli", "up", "--json", "--port", "0", *flags]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"mooncake up ended with {process.wait()}:\n{log.read_text()}"
        ready = json.loads(line)
        cluster = Cluster(
            process=process,
            endpoint=ready["endpoint"],
            log=log,
            started=[
                Member(**{key: entry[key] for key in Member.__annotations__})
                for entry in ready["processes"]
            ],
        )
        cluster.healthy()
        with cluster.client:
            yield cluster
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()
