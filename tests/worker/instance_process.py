"""Runs one instance in a process of its own: ROLE, then its configuration as JSON.

Prints the bound addresses as one line of JSON; SIGTERM stops it.
"""

import asyncio
import json
import signal
import sys

import msgspec

from mooncake_core.config import DecodeConfig, PrefillConfig
from mooncake_core.worker.threads import prepare_threads


async def main(role: str, text: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def ready(addresses: dict[str, str]) -> None:
        print(json.dumps(addresses), flush=True)

    # Here: torch comes after prepare_threads.
    if role == "prefill":
        from mooncake_core.worker.prefill_service import serve_prefill  # noqa: PLC0415

        config = msgspec.json.decode(text, type=PrefillConfig)
        await serve_prefill(config, ready=ready, stop=stop)
    else:
        from mooncake_core.worker.decode_service import serve_decode  # noqa: PLC0415

        await serve_decode(msgspec.json.decode(text, type=DecodeConfig), ready=ready, stop=stop)


if __name__ == "__main__":
    prepare_threads(1)
    asyncio.run(main(*sys.argv[1:]))
