"""Arrays on GPUs as local memory, in a process whose loader finds a stand-in for the driver."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler to build the stand-in with")
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "native/tests/cuda_stand_in.cc"
    target = folder / "libcuda.so.1"
    command = [compiler, "-std=c++20", "-shared", "-fPIC", "-pthread", str(source), "-o"]
    subprocess.run([*command, str(target)], check=True)
    return folder


@pytest.mark.parametrize("same_host", ["shm", "network"])
def test_arrays_on_gpus_are_written_and_read(driver_folder: Path, same_host: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.transfer.device_user", same_host],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(driver_folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
