"""Names of KV blocks: golden vectors, chaining, and what separates one namespace from another."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.blocks import KvIdentity, block_names

IDENTITY = KvIdentity(
    weights_digest="00", dtype="float32", layout="LKTHD", block_tokens=4, kernel_class="golden"
)
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def test_names_match_the_golden_vectors_of_the_docs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "BLOCK_NAMES.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    golden = json.loads(block)
    for case in golden["cases"]:
        identity = KvIdentity(**golden["identity"])
        namespace = identity.namespace(case["salt"])
        assert namespace.hex() == case["namespace"]
        names = block_names(namespace, case["tokens"], identity.block_tokens)
        assert [name.hex() for name in names] == case["names"]


def test_names_are_equal_in_interpreters_with_other_hash_seeds() -> None:
    code = (
        "from mooncake_core.blocks import *;"
        f"print([n.hex() for n in block_names({IDENTITY!r}.namespace('s'), range(12), 4)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            cwd=Path(__file__).parents[1],
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
    assert outputs.pop().decode().strip() == str(
        [n.hex() for n in block_names(IDENTITY.namespace("s"), range(12), 4)]
    )


@given(TOKENS, TOKENS)
def test_equal_names_mean_equal_prefixes(left: list[int], right: list[int]) -> None:
    namespace = IDENTITY.namespace()
    ours, theirs = block_names(namespace, left, 4), block_names(namespace, right, 4)
    assert len(ours) == len(left) // 4
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        end = 4 * (index + 1)
        assert (a == b) == (left[:end] == right[:end])


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(KvIdentity)])
def test_every_field_of_the_identity_separates_names(field: str) -> None:
    value = getattr(IDENTITY, field)
    other = dataclasses.replace(
        IDENTITY, **{field: value + 1 if isinstance(value, int) else value + "x"}
    )
    assert other.namespace() != IDENTITY.namespace()


def test_salts_separate_tenants() -> None:
    assert IDENTITY.namespace("a") != IDENTITY.namespace("b")


def test_fields_cannot_run_into_each_other() -> None:
    one = dataclasses.replace(IDENTITY, dtype="ab", layout="c")
    two = dataclasses.replace(IDENTITY, dtype="a", layout="bc")
    assert one.namespace() != two.namespace()


def test_a_token_outside_32_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        block_names(IDENTITY.namespace(), [0, 1, 2, 2**32], 4)
