"""The example for people runs as it is, and does what its page says."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_of_two_processes_runs() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "transfer.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "says b'done'; I have b'hello'" in ran.stdout
    assert "read b'weights'" in ran.stdout
    errors = [
        "ReadOnly: ",
        "BufferNotRegistered: ",
        'TransferError: the owner has no segment named "',
    ]
    assert all(f"user: {error}" in ran.stdout for error in errors)
    assert "4,194,304 bytes written" in ran.stdout
    assert not ran.stderr
