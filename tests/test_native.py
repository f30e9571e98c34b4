"""The boundary to the native library: its errors, its stub, its checksums."""

import array
import itertools
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core import native
from mooncake_core.errors import MooncakeError
from mooncake_core.native import ERROR_OF_CODE, Code, _native
from mooncake_core.transfer import crc32c, crc32c_gather

ROOT = Path(__file__).parents[1]


def test_every_code_of_the_header_has_an_error() -> None:
    header = (ROOT / "native/base/status.h").read_text()
    declared = {
        name: int(number) for name, number in re.findall(r"^  (k\w+) = (\d+),", header, re.M)
    }
    assert {code.name: code.value for code in Code} == declared
    assert set(ERROR_OF_CODE) == set(Code) - {Code.kOk}
    for error in ERROR_OF_CODE.values():
        assert error is ValueError or issubclass(error, MooncakeError)


def test_a_native_error_becomes_ours_and_keeps_its_message() -> None:
    for code, kind in ERROR_OF_CODE.items():
        with pytest.raises(kind, match="which and why"), native.native_errors:
            raise _native.Error(code, "which and why", False)


@pytest.mark.parametrize("is_dirty", [False, True])
def test_an_error_says_whether_the_target_is_dirty(is_dirty: bool) -> None:
    for code in (Code.kTimeout, Code.kCancelled, Code.kPeerUnreachable, Code.kWire, Code.kFenced):
        with pytest.raises(MooncakeError) as raised, native.native_errors:
            raise _native.Error(code, "which and why", is_dirty)
        assert raised.value.is_dirty is is_dirty


def test_other_exceptions_pass_through_untouched() -> None:
    with pytest.raises(KeyError), native.native_errors:
        raise KeyError("mine")


def test_the_committed_stub_is_what_stubgen_makes(tmp_path: Path) -> None:
    made = tmp_path / "_native.pyi"
    command = ["-m", "nanobind.stubgen", "-q", "-m", "mooncake_core._native", "-o", str(made)]
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT)
    assert made.read_text() == (ROOT / "mooncake_core/_native.pyi").read_text()


def slow_crc32c(data: bytes, value: int = 0) -> int:
    """Bit by bit, as the polynomial says."""
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc32c_of_the_published_vectors() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@given(st.binary(max_size=3000), st.integers(0, 2**32 - 1))
def test_crc32c_agrees_with_the_definition(data: bytes, value: int) -> None:
    assert crc32c(data, value) == slow_crc32c(data, value)


@given(st.integers(0, 40_000), st.lists(st.integers(0, 40_000), max_size=6), st.integers(0, 7))
def test_crc32c_of_parts_is_that_of_the_whole(size: int, cuts: list[int], skip: int) -> None:
    data = memoryview(random.Random(size).randbytes(size + skip))[skip:]
    edges = [0, *sorted(min(cut, size) for cut in cuts), size]
    value = 0
    for begin, end in itertools.pairwise(edges):
        value = crc32c(data[begin:end], value)
    assert value == crc32c(data)


def test_crc32c_gather_reads_runs_in_order() -> None:
    memory = array.array("B", range(200))
    address, _ = memory.buffer_info()
    addresses = array.array("Q", [address + 100, address, address + 50])
    lengths = array.array("Q", [50, 10, 0])
    data = memory.tobytes()
    assert crc32c_gather(addresses, lengths) == crc32c(data[100:150] + data[:10])
    with pytest.raises(ValueError, match="equally many"):
        crc32c_gather(addresses, lengths[:1])


def test_crc32c_needs_contiguous_bytes() -> None:
    with pytest.raises(BufferError):
        crc32c(memoryview(bytes(10))[::2])
    with pytest.raises(TypeError):
        crc32c(7)
