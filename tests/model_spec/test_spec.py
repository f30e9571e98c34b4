"""The size of a KV cache, right for full attention and refused for everything else."""

import json
from pathlib import Path
from typing import Any

import pytest

from mooncake_core.errors import ModelError
from mooncake_core.model_spec import KNOWN, load_spec, read_spec

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}


def size(**changes: Any) -> int:
    config = {key: value for key, value in {**LLAMA_8B, **changes}.items() if value is not None}
    return read_spec(config, "m", "test").bytes_per_token()


# Bytes a token in bfloat16, one copy, from the models' published configurations.
@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("smollm2-135m-instruct", 23_040),
        ("llama-2-7b", 524_288),
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-405b", 516_096),
        ("mixtral-8x7b", 131_072),
        ("mistral-large-2", 360_448),
        ("qwen2.5-7b", 57_344),
        ("qwen2.5-72b", 327_680),
        ("qwen3-0.6b", 114_688),
        ("qwen3-8b", 147_456),
        ("qwen3-32b", 262_144),
        ("qwen3-235b-a22b", 192_512),
        ("phi-4", 204_800),
    ],
)
def test_a_built_in_model_has_its_known_size(name: str, bytes_per_token: int) -> None:
    spec = load_spec(name)
    assert spec.bytes_per_token("bfloat16") == bytes_per_token
    assert spec.bytes_per_token("float32") == 2 * bytes_per_token
    assert "config.json of" in spec.source


def test_every_built_in_model_is_in_the_table_above() -> None:
    (mark,) = test_a_built_in_model_has_its_known_size.pytestmark  # type: ignore[attr-defined]
    assert {name for name, _ in mark.args[1]} == set(KNOWN)


def test_kv_heads_make_the_size_and_default_to_the_heads() -> None:
    assert size() == 131_072
    assert size(num_key_value_heads=1) == 16_384
    assert size(num_key_value_heads=None) == 524_288


def test_an_explicit_head_dim_wins_over_the_quotient() -> None:
    # Qwen3-0.6B: 1024 / 16 would be 64, half of what it is.
    shape = {"num_hidden_layers": 28, "num_attention_heads": 16, "hidden_size": 1024}
    assert size(model_type="qwen3", head_dim=128, **shape) == 114_688
    # Mistral Nemo: 5120 / 32 would be 160, a quarter too much.
    nemo = {"num_hidden_layers": 40, "hidden_size": 5120, "head_dim": 128}
    assert size(model_type="mistral", **nemo) == 163_840


def test_multi_head_attention_with_an_odd_head_dim_is_sized() -> None:
    phi = {"num_hidden_layers": 32, "num_key_value_heads": 32, "hidden_size": 3072}
    assert size(model_type="phi3", **phi) == 393_216


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "kv_lora_rank = 512"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window = 4096"),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True}, "sliding_w"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types = sliding_att"),
        ({"model_type": "qwen3_next", "full_attention_interval": 4}, "full_attention_interval"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"}, "hybrid_override_pat"),
        ({"model_type": "minimax_m2", "attn_type_list": [0, 1]}, "attn_type_list"),
        ({"attention_chunk_size": 8192}, "attention_chunk_size"),
        ({"model_type": "gemma3n", "num_kv_shared_layers": 15}, "num_kv_shared_layers"),
        ({"model_type": "gpt2"}, "model_type = gpt2"),
        ({"model_type": None}, "model_type = None"),
    ],
)
def test_what_keeps_something_else_is_refused_with_the_key_that_told(
    changes: dict[str, Any], key: str
) -> None:
    with pytest.raises(ModelError, match="cannot be sized yet") as error:
        size(**changes)
    assert key in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "qwen2", "sliding_window": 131_072, "use_sliding_window": False},
        {"model_type": "qwen2", "sliding_window": 4096},
        {
            **{"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True},
            "max_window_layers": 32,
        },
        {"model_type": "phi3", "sliding_window": 262_144},
        {"model_type": "mistral", "sliding_window": None},
        {"layer_types": ["full_attention"] * 32},
        {"model_type": "minimax_m2", "attn_type_list": [1] * 32},
    ],
)
def test_a_window_that_never_cuts_is_full_attention(changes: dict[str, Any]) -> None:
    assert size(**changes) == 131_072


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers: expected a positive integer, got None"),
        ({"num_attention_heads": 0}, "num_attention_heads: expected a positive integer, got 0"),
        ({"num_key_value_heads": "8"}, "num_key_value_heads: expected a positive"),
        ({"hidden_size": 4097}, "hidden_size 4097 is no multiple"),
        ({"head_dim": True}, "head_dim: expected a positive integer"),
    ],
)
def test_a_broken_configuration_is_refused_with_its_key(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelError) as error:
        size(**changes)
    assert problem in str(error.value)


def test_a_file_and_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    assert load_spec(str(tmp_path)).bytes_per_token() == 131_072
    assert load_spec(str(tmp_path / "config.json")).context_tokens == 131_072


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"built in: .*llama-3\.1-8b"):
        load_spec("llama-9")
    with pytest.raises(ModelError, match="cannot read it"):
        load_spec(str(tmp_path))
    for text, problem in [("{", "not JSON"), ("[]", "not a JSON object")]:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ModelError, match=problem):
            load_spec(str(tmp_path))


@pytest.mark.parametrize("name", ["llama-3.1-70b", "llama3.1-70b", "Llama-3.1-70B"])
def test_a_built_in_name_is_known_however_its_dashes_are_set(name: str) -> None:
    assert load_spec(name).name == "llama-3.1-70b"


def test_a_name_that_is_not_built_in_is_told_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"did you mean 'llama-3\.1-70b'"):
        load_spec("lama-3.1-70b")
