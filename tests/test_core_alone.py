"""The core distribution works where none of the optional packages is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = ("torch", "numpy", "tokenizers", "jinja2", "safetensors", "transformers", "pynvml")

STORE = """
import asyncio, sys
for name in OPTIONAL:
    sys.modules[name] = None  # what is None here raises ImportError on import
from mooncake_core.config import MasterConfig, StoreClientConfig, StoreConfig, TransferConfig
from mooncake_core.store import StoreClient, patterns, tensors
from mooncake_core.store.aio import AsyncStoreClient
from mooncake_core.store.master_service import serve_master
from mooncake_core.store.node_service import serve_store
from mooncake_core.transfer import TransferEngine

async def started(serve, config, stop):
    addresses = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(config, ready=addresses.set_result, stop=stop))
    await asyncio.wait({task, addresses}, return_when=asyncio.FIRST_COMPLETED)
    return task, addresses.result()

def use(master):
    engine = TransferEngine(TransferConfig())
    client = StoreClient(engine, StoreClientConfig(master=master))
    while not client.stats().nodes:
        pass
    assert client.put("key", b"value") and client.get("key") == b"value"
    assert client.get("another") is None
    assert patterns.remove_matching(client, "^k") == 1
    client.close()
    engine.close()

async def main():
    stop = asyncio.Event()
    free = "127.0.0.1:0"
    master, at = await started(serve_master, MasterConfig(listen=free, admin=free), stop)
    node, _ = await started(serve_store, StoreConfig(master=at["rpc"], capacity="1 MiB"), stop)
    await asyncio.to_thread(use, at["rpc"])
    engine = TransferEngine(TransferConfig())
    async with AsyncStoreClient(engine, StoreClientConfig(master=at["rpc"])) as client:
        assert await client.put("key", b"again") and await client.get("key") == b"again"
    engine.close()
    stop.set()
    await asyncio.gather(master, node)

asyncio.run(main())
print("done")
"""

ROLE = """
import sys
from mooncake_cli.app import main
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in OPTIONAL:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
sys.stderr = sys.stdout
assert main(["ROLE", "--listen=127.0.0.1:0"]) == 1
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"OPTIONAL = {OPTIONAL}\n{code}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_store_serves_without_optional_packages() -> None:
    assert run(STORE) == "done\n"


@pytest.mark.parametrize(
    ("role", "package"), [("prefill", "torch"), ("decode", "torch"), ("conductor", "jinja2")]
)
def test_a_role_without_its_packages_is_one_clear_line(role: str, package: str) -> None:
    (line,) = run(ROLE.replace("ROLE", role)).splitlines()
    assert line == (
        f"mooncake: {role} needs the Python package {package}, which is not installed; "
        "`mooncake doctor` says what is missing and how to get it"
    )


def test_importing_the_core_loads_nothing_heavy() -> None:
    code = "import sys, mooncake_core; print(*sys.modules)"
    loaded = set(run(code).split())
    assert not {name.split(".")[0] for name in loaded} & {*OPTIONAL, "aiohttp"}
    assert "mooncake_core._native" not in loaded
