"""`mooncake te-bench`."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import typer

from mooncake_cli.flags import Json, with_flags_of
from mooncake_cli.interrupts import exit_code, terminable
from mooncake_cli.progress import Progress
from mooncake_cli.te_bench import print_comparison, print_report
from mooncake_core.config import Table, TransferConfig
from mooncake_core.errors import ConfigError, MooncakeError, UsageError
from mooncake_core.te_bench.bench import Bench
from mooncake_core.te_bench.compare import compare
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.faults import for_faults
from mooncake_core.te_bench.loopback import LoopbackTarget
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plot import draw, require_matplotlib
from mooncake_core.te_bench.report import read_report
from mooncake_core.te_bench.target import Target

Show: Any = typer.Option(None, "--progress/--no-progress", help="On stderr; default: on terminals.")
Plot: Any = typer.Option(None, metavar="FILE", help="Draw the rows there, such as rates.png.")


class TargetConfig(Table, frozen=True):
    """`mooncake te-bench target`."""

    listen: str = "127.0.0.1:0"
    """host:port for `te-bench run`; port 0 takes a free one."""
    transfer: TransferConfig = TransferConfig()


def measure_loopback(
    config: BenchConfig,
    *,
    context: typer.Context,
    loopback: bool = typer.Option(False, "--loopback", help="Measure a target of its own, here."),
    plot: Path | None = Plot,
    progress: bool | None = Show,
    as_json: bool = Json,
) -> None:
    """Measure how fast the transfer engine moves bytes, beside what this machine can do."""
    if context.invoked_subcommand is not None:
        return
    if not loopback:
        print("say --loopback, or one of target, run, compare; --help tells more", file=sys.stderr)
        raise typer.Exit(2)
    _prepare(plot, config)
    config = for_faults(config, is_loopback=True)
    with terminable(), LoopbackTarget(config.transfer) as target:
        _measure(target.address, config, (plot, progress, as_json), target)


def measure_remote(
    config: BenchConfig,
    target: str = typer.Argument(
        ..., metavar="HOST:PORT", help="The control address that `te-bench target` printed."
    ),
    plot: Path | None = Plot,
    progress: bool | None = Show,
    as_json: bool = Json,
) -> None:
    """Measure a target that runs elsewhere."""
    _prepare(plot, config)
    config = for_faults(config, is_loopback=False)
    with terminable():
        _measure(target, config, (plot, progress, as_json))


def serve_target(config: TargetConfig, as_json: bool = Json) -> None:
    """Own memory and serve `te-bench run` until a signal; the first line says where."""
    stop = {signal.SIGINT, signal.SIGTERM}
    # Before the threads start, so that they inherit it and the signal waits for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    target = Target(config.listen, config.transfer)
    where = {"address": target.address, "engine": target.engine.endpoint}
    said = f"control {where['address']}, engine {where['engine']}"
    print(msgspec.json.encode(where).decode() if as_json else said, flush=True)
    signal.sigwait(stop)
    target.close()


def compare_reports(
    before: Path = typer.Argument(..., metavar="A.json", help="What --json printed."),
    after: Path = typer.Argument(..., metavar="B.json", help="The same, later or elsewhere."),
    threshold: str = typer.Option(
        "5%", help="A row slower by more than this and than its spread is a regression."
    ),
    as_json: bool = Json,
) -> None:
    """Compare two results row by row.

    A regression ends with exit code 1, and so does having no row in common. What else may make a
    difference, such as another kernel or an interrupted run, is told on stderr.
    """
    limit = _share(threshold)
    found = compare(read_report(before), read_report(after), limit)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        print_comparison(found)
    if not found.rows:
        raise ConfigError(f"{before} and {after} have no row in common: nothing was compared")
    if found.regressions:
        raise typer.Exit(1)


command = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
command.callback()(with_flags_of(BenchConfig, measure_loopback, without=["transfer.same_host"]))
command.command("run")(with_flags_of(BenchConfig, measure_remote, without=["transfer.same_host"]))
command.command("target")(with_flags_of(TargetConfig, serve_target))
command.command("compare")(compare_reports)


def _prepare(plot: Path | None, config: BenchConfig) -> None:
    """Find out before the run what would only fail after it."""
    if plot is None:
        return
    if config.fault or config.soak:
        raise UsageError("--plot: draws the rows of a sweep; --fault and --soak make none")
    require_matplotlib()
    if not plot.parent.is_dir():
        raise ConfigError(f"--plot: {plot.parent} is no folder")


def _measure(
    address: str,
    config: BenchConfig,
    output: tuple[Path | None, bool | None, bool],
    target: LoopbackTarget | None = None,
) -> None:
    plot, progress, as_json = output
    with Control(address) as control, Progress(progress) as say:
        bench = Bench(control, config, say, target)
        ended_by, error = 0, None
        try:
            bench.run()
        except KeyboardInterrupt as interrupt:
            ended_by = exit_code(interrupt)
        except MooncakeError as found:
            error = found
        report = bench.report()
    if config.transfer.addresses and any(way.startswith("shm:") for way in report.choices.values()):
        print("--transfer-addresses: not used over shm; --transport tcp uses them", file=sys.stderr)
    if error is not None and not report.has_results:
        raise error
    print(msgspec.json.encode(report).decode()) if as_json else print_report(report)
    if plot is not None and report.rows:
        draw(report.rows, plot)
    if error is not None:
        raise error
    if ended_by:
        raise typer.Exit(ended_by)
    if report.is_bad:
        raise typer.Exit(1)


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if 0 <= share < 1:
            return share
    raise UsageError(f"--threshold: {text!r} is no share such as 5% or 0.05")
