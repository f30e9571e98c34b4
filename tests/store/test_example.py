"""The example for people runs as it is, and does what its page says."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.store.processes import Cluster

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


def blocks_of(page):
    """Return the Python that a page shows, block by block."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_all_that_the_page_of_the_store_shows_runs_as_it_is() -> None:
    """In its order, and on the addresses of this machine."""
    blocks = blocks_of("STORE.md")
    assert len(blocks) == 6
    with closing(Cluster("shm", nodes=2, capacity="16 MiB")) as cluster:
        page: dict[str, Any] = {}
        for block in blocks:
            here = block.replace("10.0.0.1:7400", cluster.rpc).replace("10.0.0.3:0", "127.0.0.1:0")
            code = compile(here, "STORE.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, page))
            else:
                exec(code, page)
        found = cluster.client.describe(["key", "kept", "kv", "weights", "more weights"])
        assert [one and one.size_bytes for one in found[:3]] == [300, 5, 4 << 20]
        assert None not in found
        page["engine"].close()
