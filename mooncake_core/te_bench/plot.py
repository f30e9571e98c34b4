"""A picture of a sweep. Needs matplotlib, which the extra `plot` brings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mooncake_core.errors import ConfigError
from mooncake_core.te_bench.report import CaseResult


def require_matplotlib() -> None:
    """Raise ConfigError, which says how to get it, where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "--plot: needs the Python package matplotlib: pip install 'mooncake-serving[plot]'"
        )


def draw(rows: Sequence[CaseResult], path: Path) -> None:
    """Draw rate over block size, a line for each other property, into a PNG, SVG or PDF.

    Raises:
        ConfigError: the file cannot be written, or its name says no kind of picture.
    """
    # Optional, and slow to load.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="block, bytes", ylabel="GB/s (10^9 bytes)")
    for label, line in _lines(rows).items():
        blocks = [row.case.block_bytes for row in line]
        drawn = axes.errorbar(
            blocks,
            [row.gb_per_s for row in line],
            yerr=[row.gb_per_s * row.spread for row in line],
            marker="o",
            label=label,
        )
        bases = [row.gb_per_s / row.of_baseline for row in line if row.of_baseline]
        if len(bases) == len(line):
            axes.plot(blocks, bases, linestyle=":", color=drawn[0].get_color())
    axes.set_ylim(bottom=0)
    axes.legend(title="dotted: the baseline")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot: {path}: {error}") from error


def _lines(rows: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    lines = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.case.block_bytes):
        case = row.case
        lines[f"{row.transport} {case.direction}, {case.batch} x {case.threads}"].append(row)
    return dict(lines)
