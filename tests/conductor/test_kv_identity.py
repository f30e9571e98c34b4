"""What instances agree on is what names their blocks."""

import msgspec
import pytest

from mooncake_core.blocks import block_names
from mooncake_core.messages import ModelInfo, kv_identity

MODEL = ModelInfo(
    name="m",
    weights_digest="ab" * 16,
    dtype="float32",
    layout="LKTHD",
    kernel_class="native-cpu",
    block_tokens=256,
    page_tokens=16,
    layers=2,
    kv_bytes_per_token=1024,
    context_tokens=2048,
    vocab=100,
)


@pytest.mark.parametrize(
    "change",
    [
        {"weights_digest": "cd" * 16},
        {"dtype": "bfloat16"},
        {"layout": "other"},
        {"block_tokens": 128},
        {"kernel_class": "cuda"},
    ],
)
def test_whatever_changes_the_bytes_changes_the_names(change: dict[str, str | int]) -> None:
    other = msgspec.structs.replace(MODEL, **change)
    tokens = range(256)
    mine = block_names(kv_identity(MODEL).namespace(), tokens, 128)
    theirs = block_names(kv_identity(other).namespace(), tokens, 128)
    assert not set(mine) & set(theirs)


def test_the_served_name_does_not_change_the_block_names() -> None:
    renamed = msgspec.structs.replace(MODEL, name="another")
    assert kv_identity(renamed) == kv_identity(MODEL)
