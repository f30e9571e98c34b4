"""One process of a test's store: `python -m tests.store.daemon KIND JSON`.

master and node serve until they are killed. writer takes a key, writes its first part, says so, and
goes on when it is told to on stdin. Each line on stdout is one JSON value.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
from array import array

import msgspec

from mooncake_core.config import MasterConfig, StoreConfig, TransferConfig
from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.errors import MooncakeError
from mooncake_core.store import StoreClient
from mooncake_core.transfer import TransferEngine


def say(value):
    print(json.dumps(value), flush=True)


def serve(module, shell, config):
    """Run a shell until stdin ends, which it does with the test's process, however that ends.

    Its module is loaded only where it is needed: starting should be quick.
    """
    run = getattr(importlib.import_module(module), shell)

    async def until_told():
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        threading.Thread(
            target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)), daemon=True
        ).start()
        await run(config, ready=say, stop=stop)

    asyncio.run(until_told())


def write(master, transfer, key, parts, part_bytes):
    engine = TransferEngine(msgspec.convert(transfer, TransferConfig))
    client = StoreClient(engine, StoreClientConfig(master=master))
    segment = engine.create_segment(part_bytes)
    segment.buffer[:] = b"\xee" * part_bytes
    where, length = array("Q", [segment.address]), array("Q", [part_bytes])
    writer = client.open_write(key, size_bytes=parts * part_bytes, part_bytes=part_bytes)
    writer.write_part(0, where, length)
    say("started")
    sys.stdin.readline()
    try:
        for part in range(1, parts):
            writer.write_part(part, where, length)
        writer.commit()
        say("committed")
    except MooncakeError as error:
        say(type(error).__name__)
    again = bool(client.put(key + "-again", b"well"))
    say([again, client.get(key + "-again") == b"well"])


def main(kind, text):
    given = json.loads(text)
    if kind == "master":
        serve(
            "mooncake_core.store.master_service",
            "serve_master",
            msgspec.convert(given, MasterConfig),
        )
    elif kind == "node":
        serve(
            "mooncake_core.store.node_service", "serve_store", msgspec.convert(given, StoreConfig)
        )
    elif kind == "writer":
        write(**given)


if __name__ == "__main__":
    main(*sys.argv[1:])
