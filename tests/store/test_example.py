"""The example for people runs as it is, and does what its page says."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_of_a_store_runs() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "store.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    assert ran.stdout.splitlines()[:11] == [
        "put: STORED, EXISTS; get: b'hello'",
        "after upsert: b'hi', a miss: None",
        "leading keys there: 2",
        "important: 18 bytes, 2 nodes",
        "view: 4,194,304 bytes, copied: False",
        "blocks there: 1 of 2",
        "range: True, b'\\x05\\x06\\x07'",
        "rank 0 readable: False",
        "rank 0 readable: True",
        "tensor: tensor([[0., 1., 2.],",
        "        [3., 4., 5.]], dtype=torch.bfloat16)",
    ]
    assert "TensorMismatch: 'weights': holds bfloat16[2, 3]; float32[3, 2] is needed" in ran.stdout
    assert "asyncio: 10 objects\nremoved: 10\nmatching: 10\n" in ran.stdout
    assert "reads_corrupt" in ran.stdout
