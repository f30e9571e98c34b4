"""What samples come to, and how two results compare."""

from pathlib import Path

import msgspec
import pytest

from mooncake_core.errors import ConfigError
from mooncake_core.te_bench.compare import compare
from mooncake_core.te_bench.report import FaultResult, best_row, read_report, shares
from tests.te_bench.results import MACHINE, path, report, result, sample


def test_a_row_is_its_median_and_its_ratio_is_taken_pair_by_pair() -> None:
    row = result(
        sample(1e9, baseline_bytes_per_s=2e9),
        sample(4e9, baseline_bytes_per_s=4e9),
        sample(2e9, baseline_bytes_per_s=1e9),
    )
    assert row.gb_per_s == 2 and row.ops_per_s == 2e9 / (1 << 20)
    assert row.of_baseline == 1  # of 0.5, 1 and 2
    assert row.cpu_s_per_gb == pytest.approx(3 * 0.75 / 7)
    assert row.initiator_cpu_s_per_gb == pytest.approx(3 * 0.5 / 7)


def test_without_a_baseline_there_is_no_ratio() -> None:
    assert result(sample(1e9)).of_baseline is None


def test_shares_are_of_all_samples_and_resends_are_summed() -> None:
    row = result(
        sample(1e9, paths=(path("a", 300, resent=2), path("b", 100))),
        sample(1e9, paths=(path("b", 500), path("a", 100, resent=1))),
    )
    assert shares(row) == {"b": 0.6, "a": 0.4} and list(shares(row)) == ["b", "a"]
    assert row.resent_slices == 3


def test_the_best_row_reads() -> None:
    rows = [result(sample(1e9)), result(sample(3e9), block_bytes=4096)]
    assert best_row(rows) is rows[1]


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = report(result(sample(1e9)))
    file = tmp_path / "a.json"
    file.write_bytes(msgspec.json.encode(kept))
    assert read_report(file) == kept


def test_a_file_that_is_no_report_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.json: cannot read it"):
        read_report(tmp_path / "nothing.json")
    file = tmp_path / "b.json"
    file.write_text('{"format": 1}')
    with pytest.raises(ConfigError, match=r"b\.json: not what"):
        read_report(file)
    other = msgspec.structs.replace(report(), format="mooncake te-bench 0")
    file.write_bytes(msgspec.json.encode(other))
    with pytest.raises(ConfigError, match="its format is 'mooncake te-bench 0'"):
        read_report(file)


def test_a_row_that_is_slower_by_more_than_the_threshold_is_a_regression() -> None:
    before = report(result(sample(1e9)), result(sample(1e9), block_bytes=4096))
    after = report(result(sample(0.94e9)), result(sample(0.96e9), block_bytes=4096))
    found = compare(before, after, 0.05)
    assert [row.is_regression for row in found.rows] == [True, False]
    assert found.rows[0].ratio == pytest.approx(0.94)
    assert not compare(after, before, 0.05).regressions


def test_a_row_that_is_slower_within_its_own_spread_is_no_regression() -> None:
    before = report(result(sample(1.1e9), sample(0.9e9), sample(1e9)))
    after = report(result(sample(0.9e9), sample(0.95e9), sample(0.85e9)))
    (row,) = compare(before, after, 0.05).rows
    assert row.ratio == pytest.approx(0.9) and row.spread > 0.15 and not row.is_regression
    assert row.name == "tcp read 1 MiB x 16 x 1"


def test_rows_of_one_side_only_are_named_and_no_regression() -> None:
    before = report(result(sample(1e9)))
    after = report(result(sample(1e9), block_bytes=4096))
    found = compare(before, after, 0.05)
    assert found.rows == () and not found.regressions
    assert found.only_before == ("tcp read 1 MiB x 16 x 1",)
    assert found.only_after == ("tcp read 4 KiB x 16 x 1",)


def test_what_makes_two_results_hard_to_compare_is_told() -> None:
    other = msgspec.structs.replace(MACHINE, kernel="Linux 7")
    found = compare(report(), report(machine=other), 0.05)
    assert found.differences == ("initiator.kernel: Linux 6 | Linux 7",)


def test_a_row_that_took_another_way_and_a_run_that_was_interrupted_are_told() -> None:
    over_tcp = result(sample(1e9))
    over_shm = msgspec.structs.replace(over_tcp, transport="shm")
    after = msgspec.structs.replace(report(over_shm), is_complete=False)
    assert compare(report(over_tcp), after, 0.05).differences == (
        "is_complete: True | False",
        "read 1 MiB x 16 x 1: tcp | shm",
    )


def test_a_rate_of_nothing_is_no_result(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    nothing = msgspec.structs.replace(result(sample(1e9)), gb_per_s=0.0)
    file.write_bytes(msgspec.json.encode(report(nothing)))
    with pytest.raises(ConfigError, match="not what"):
        read_report(file)


def test_a_fault_that_nobody_noticed_has_tested_nothing() -> None:
    seen = FaultResult(
        fault="lane",
        what="1 connection",
        detected_s=0.1,
        error="",
        longest_call_s=0.1,
        used_again_s=0.2,
        resent_slices=1,
        calls=9,
    )
    unseen = msgspec.structs.replace(seen, detected_s=None, tries=10)
    assert not msgspec.structs.replace(report(), faults=(seen,)).is_bad
    assert msgspec.structs.replace(report(), faults=(seen, unseen)).is_bad
