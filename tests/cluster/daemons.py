"""The five daemons, each started by its own command, on one address of this host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mooncake_cli.http import get_json
from tests.cluster.harness import eventually

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}


class Daemon(NamedTuple):
    role: str
    pid: int
    addresses: dict[str, str]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in status if line.startswith("VmRSS")))


@contextlib.contextmanager
def run_daemons(folder: Path, host: str) -> Iterator[dict[str, Daemon]]:
    """Yield each daemon by its role, once all can serve; payload crosses the network."""
    config = folder / "config.json"
    config.write_text(json.dumps(TINY))
    model = f"--model=dummy:{config}", "--model-name=tiny"
    free = f"{host}:0"
    with contextlib.ExitStack() as started:

        def start(role: str, *flags: str) -> Daemon:
            return started.enter_context(_run(folder, role, *flags))

        master = start("master", f"--listen={free}", f"--admin={free}")
        rpc = master.addresses["rpc"]
        conductor = start("conductor", f"--listen={free}", f"--pool-master={rpc}", *model)
        network = f"--transfer-listen={free}", "--transfer-same-host=network"
        store = start("store", f"--master={rpc}", "--capacity=8 MiB", *network)
        worker = f"--listen={free}", f"--conductor={conductor.addresses['http']}", *network
        prefill = start("prefill", *worker, f"--pool-master={rpc}", "--pool-tokens=2048", *model)
        decode = start("decode", *worker, "--pool-tokens=2048", *model)
        daemons = {one.role: one for one in (master, conductor, store, prefill, decode)}
        eventually(lambda: len(status(daemons)["members"]) == 2, 30, "both instances registered")
        yield daemons


def status(daemons: dict[str, Daemon]) -> Any:
    return get_json(daemons["conductor"].addresses["http"], "/status")[1]


@contextlib.contextmanager
def _run(folder: Path, role: str, *flags: str) -> Iterator[Daemon]:
    read_fd, write_fd = os.pipe()
    log = folder / f"{role}.log"
    command = [sys.executable, "-m", "mooncake_cli", role, f"--ready-fd={write_fd}", *flags]
    with log.open("w") as stderr, os.fdopen(read_fd) as ready:
        process = subprocess.Popen(command, pass_fds=(write_fd,), stderr=stderr)
        os.close(write_fd)
        try:
            line = ready.readline()
            assert line, log.read_text()
            yield Daemon(role, process.pid, json.loads(line))
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            try:
                process.wait(20)
            finally:
                process.kill()
                process.wait()
