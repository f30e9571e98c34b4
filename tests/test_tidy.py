"""Rules about the sources that no linter knows: layers, purity, sizes, left-over marks."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Imports point down this list only (docs/ARCHITECTURE.md).
LAYERS = [
    "errors",
    "units",
    "clock",
    "blocks",
    "messages",
    "config",
    "native",
    "topology",
    "listening",
    "model_spec",
    "tokenizer",
    "transfer",
    "te_bench",
    "store",
    "store_bench",
    "cache",
    "model",
    "worker",
    "conductor",
]
# `native` stands beside the folders that use it; `messages` and `blocks` know each other's terms.
SIBLINGS = [{"worker", "conductor"}]

# Decisions are made without I/O, threads, clocks or randomness of their own.
CORES = [
    "mooncake_core/blocks.py",
    "mooncake_core/messages.py",
    "mooncake_core/units.py",
    "mooncake_core/topology/advertise.py",
    "mooncake_core/topology/distance.py",
    "mooncake_core/topology/filters.py",
    "mooncake_core/topology/gids.py",
    "mooncake_core/topology/host.py",
    "mooncake_core/topology/matrix.py",
    "mooncake_core/topology/usable.py",
    "mooncake_core/topology/verdicts.py",
    "mooncake_core/cache/page_table.py",
    "mooncake_core/cache/prefix_cache.py",
    "mooncake_core/te_bench/compare.py",
    "mooncake_core/te_bench/figures.py",
    "mooncake_core/te_bench/lists.py",
    "mooncake_core/te_bench/options.py",
    "mooncake_core/te_bench/plan.py",
    "mooncake_core/te_bench/recompute.py",
    "mooncake_core/te_bench/report.py",
    "mooncake_core/store/described.py",
    "mooncake_core/store/elements.py",
    "mooncake_core/store/options.py",
    "mooncake_core/store/stats.py",
    "mooncake_core/store/tensor_format.py",
    "mooncake_core/store_bench/messages.py",
    "mooncake_core/store_bench/options.py",
    "mooncake_core/store_bench/plan.py",
    "mooncake_core/store_bench/report.py",
    "mooncake_core/store_bench/tally.py",
    "mooncake_core/worker/decode_core.py",
    "mooncake_core/worker/prefill_core.py",
    "mooncake_core/conductor/answer.py",
    "mooncake_core/conductor/cluster.py",
    "mooncake_core/conductor/estimates.py",
    "mooncake_core/conductor/index.py",
    "mooncake_core/conductor/openai_api.py",
    "mooncake_core/conductor/policy.py",
    "mooncake_core/conductor/request.py",
]
IMPURE = {"asyncio", "os", "random", "socket", "subprocess", "threading", "time"}

LONGEST_FUNCTION = 70
LONGEST_FILE = 500


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for name in listed.stdout.split() if (path := ROOT / name).is_file()]


def python_sources() -> list[Path]:
    return tracked("mooncake_core/*.py", "mooncake_cli/*.py")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "mooncake_core":
                yield from (f"mooncake_core.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1].removeprefix("_") if parts[0] == "mooncake_core" and len(parts) > 1 else None


@pytest.mark.parametrize("path", python_sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down_the_list_of_layers(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    own = layer_of(module)
    for name in imported(ast.parse(path.read_text())):
        assert own is None or not name.startswith("mooncake_cli"), f"{module} imports {name}"
        other = layer_of(name)
        if own is None or other is None or own in {"__init__", "native"} or own == other:
            continue
        if other not in LAYERS:
            continue
        assert own in LAYERS, f"{module}: the folder {own!r} is in no layer"
        assert LAYERS.index(other) < LAYERS.index(own), f"{module} imports {name}"
        assert {own, other} not in SIBLINGS, f"{module} imports {name}"


@pytest.mark.parametrize("name", CORES)
def test_a_core_has_no_clock_io_thread_or_randomness(name: str) -> None:
    used = {module.split(".")[0] for module in imported(ast.parse((ROOT / name).read_text()))}
    assert not used & IMPURE


def test_functions_and_files_fit_on_a_screen_or_a_few() -> None:
    too_long = []
    for path in python_sources():
        text = path.read_text()
        if text.count("\n") > LONGEST_FILE:
            too_long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    too_long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert not too_long


def test_nothing_is_left_to_do_and_nothing_names_a_workplace() -> None:
    # Where this checkout lies says something about this machine, and nothing about the project.
    places = "|".join({re.escape(f"{folder}/") for folder in (ROOT, ROOT.parent) if folder.name})
    marks = re.compile(
        rf"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|(?<![\w.-])({places})", re.ASCII
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked("*.py", "*.cc", "*.h", "*.md", "*.toml", "Makefile", "*.sh")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert not found


def test_nothing_that_executes_is_read_from_the_wire() -> None:
    banned = {"pickle", "marshal", "dill", "cloudpickle", "shelve"}
    for path in python_sources():
        used = {module.split(".")[0] for module in imported(ast.parse(path.read_text()))}
        assert not used & banned, path


def test_the_installed_code_is_built_for_no_single_machine() -> None:
    for path in [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml"]:
        assert "march=native" not in path.read_text()
