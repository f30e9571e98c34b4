"""`mooncake store bench`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

import msgspec
import typer

from mooncake_cli.flags import Json, with_flags_of
from mooncake_cli.interrupts import exit_code, terminable
from mooncake_cli.progress import Progress
from mooncake_cli.store_bench import print_report
from mooncake_core.errors import MooncakeError
from mooncake_core.store_bench.bench import StoreBench
from mooncake_core.store_bench.loopback import LoopbackStore
from mooncake_core.store_bench.options import StoreBenchConfig

Show: Any = typer.Option(None, "--progress/--no-progress", help="On stderr; default: on terminals.")


def measure(config: StoreBenchConfig, progress: bool | None = Show, as_json: bool = Json) -> None:
    """Measure how fast a store puts and gets, and look at every byte if asked to.

    It measures a store that runs (`--master`), or one of its own (`--loopback`). A wrong byte ends
    with exit code 1. What was put is removed at the end.
    """
    ended_by, error = 0, None
    with terminable(), Progress(progress) as say:
        bench = StoreBench(config, say)
        try:
            _run(bench, config)
        except KeyboardInterrupt as interrupt:
            ended_by = exit_code(interrupt)
        except MooncakeError as found:
            error = found
        report = bench.report()
    if bench.left and not config.loopback:
        print(f"mooncake: {bench.left}", file=sys.stderr)
    if error is not None and not report.rows:
        raise error
    print(msgspec.json.encode(report).decode()) if as_json else print_report(report)
    if error is not None:
        raise error
    if ended_by or report.is_bad:
        raise typer.Exit(ended_by or 1)


command = with_flags_of(StoreBenchConfig, measure)


def _run(bench: StoreBench, config: StoreBenchConfig) -> None:
    with ExitStack() as stack:
        master = config.master
        if config.loopback:
            store = LoopbackStore(
                nodes=config.nodes, capacity_bytes=config.capacity_bytes, transfer=config.transfer
            )
            master = stack.enter_context(store).master
        bench.run(master)
