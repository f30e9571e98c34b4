"""Loading: what is accepted, and what is refused by name."""

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.config.tables import ModelConfig
from mooncake_core.errors import ConfigError, ModelError
from mooncake_core.model import load_model
from tests.model import tiny


@pytest.fixture
def folder(tmp_path):
    tiny.save("qwen3", tmp_path)
    return tmp_path


def edit_config(folder, **changes):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config.update(changes)
    file.write_text(json.dumps({key: item for key, item in config.items() if item != "absent"}))
    return folder


def edit_weights(folder, edit):
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    edit(weights)
    save_file(weights, folder / "model.safetensors")


def logits_of(model):
    return tiny.feed(model, KvPool(model.kv_shape, 4), range(4), tiny.tokens_of(40))


@pytest.mark.parametrize("backend", ["native", "auto"])
@pytest.mark.parametrize(
    ("kind", "changes", "problem"),
    [
        ("mistral", {"sliding_window": 128}, "sliding_window of 128"),
        ("mistral", {"sliding_window": "absent", "max_position_embeddings": 9000}, "4096 tokens"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64}, "sliding_window of 64"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "'sliding_attention'"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'"),
        ("llama", {"rope_parameters": {"rope_type": "llama3"}}, "factor: a positive number"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act: 'gelu'"),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ("llama", {"num_key_value_heads": 3}, "4 heads cannot share 3 KV heads"),
        ("llama", {"hidden_size": -4}, "hidden_size: a positive whole number"),
        (
            "llama",
            {"vocab_size": "absent"},
            "vocab_size: a positive whole number is needed, not None",
        ),
    ],
)
def test_a_configuration_that_is_not_computed_is_refused_by_name(
    tmp_path, kind, changes, problem, backend
):
    tiny.save(kind, tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=problem):
        tiny.load(tmp_path, backend=backend)


def test_an_inactive_window_is_accepted(tmp_path):
    tiny.save("mistral", tmp_path)
    assert tiny.load(edit_config(tmp_path, sliding_window=4096)).context_tokens == 2048


def test_rope_as_older_files_write_it_is_the_same(tmp_path):
    tiny.save("llama3-rope", tmp_path)
    before = logits_of(tiny.load(tmp_path))
    rope = json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    theta = rope.pop("rope_theta")
    edit_config(tmp_path, rope_parameters="absent", rope_theta=theta, rope_scaling=rope)
    assert torch.equal(logits_of(tiny.load(tmp_path)), before)


def test_a_missing_tensor_is_named(folder):
    edit_weights(folder, lambda weights: weights.pop("model.layers.1.self_attn.k_norm.weight"))
    with pytest.raises(
        ModelError, match=r"'model\.layers\.1\.self_attn\.k_norm\.weight' is missing"
    ):
        tiny.load(folder)


def test_an_unexpected_tensor_is_named(folder):
    edit_weights(folder, lambda weights: weights.update(adapter=torch.zeros(1)))
    with pytest.raises(ModelError, match="'adapter' is not one"):
        tiny.load(folder)


def test_a_tensor_of_another_shape_is_named(folder):
    edit_weights(folder, lambda weights: weights.update({"model.norm.weight": torch.zeros(7)}))
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' is \(7,\); config\.json makes it"):
        tiny.load(folder)


def test_a_tensor_of_integers_is_refused(folder):
    wrong = torch.zeros(64, dtype=torch.int8)
    edit_weights(folder, lambda weights: weights.update({"model.norm.weight": wrong}))
    with pytest.raises(ModelError, match=r"torch\.int8; floating point is needed"):
        tiny.load(folder)


def test_a_cut_file_of_weights_is_refused(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot read it as safetensors"):
        tiny.load(folder)


def test_weights_in_several_files_are_one_model(folder):
    whole = logits_of(tiny.load(folder))
    weights = load_file(folder / "model.safetensors")
    names = {name: f"part-{index % 2}.safetensors" for index, name in enumerate(weights)}
    for file in set(names.values()):
        save_file({name: weights[name] for name in names if names[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert torch.equal(logits_of(tiny.load(folder)), whole)


def test_an_index_reaches_no_file_outside_its_folder(folder):
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "../../etc/passwd"}})
    )
    with pytest.raises(ModelError, match="no such file in"):
        tiny.load(folder)


def test_tied_weights_may_be_stored_twice(tmp_path):
    tiny.save("llama", tmp_path)
    before = logits_of(tiny.load(tmp_path))

    def untie(weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()

    edit_weights(tmp_path, untie)
    assert torch.equal(logits_of(tiny.load(tmp_path)), before)


def dummy(folder: Path, **changes: object) -> ModelConfig:
    config = tiny.config_of("qwen2").to_dict() | {"architectures": ["Qwen2ForCausalLM"]} | changes
    (folder / "config.json").write_text(json.dumps(config))
    return ModelConfig(path=f"dummy:{folder / 'config.json'}", device="cpu", dtype="float32")


def test_random_weights_are_the_same_in_every_load(tmp_path):
    first, second = (load_model(dummy(tmp_path)) for _ in range(2))
    assert first.weights_digest == second.weights_digest
    assert torch.equal(logits_of(first), logits_of(second))
    assert logits_of(first).std() > 0


def test_random_weights_of_another_shape_have_another_digest(tmp_path):
    first = load_model(dummy(tmp_path))
    second = load_model(dummy(tmp_path, num_hidden_layers=2))
    assert first.weights_digest != second.weights_digest


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cpu:1"])
def test_a_device_that_is_not_here_is_refused(folder, device):
    with pytest.raises(ConfigError, match=rf"model\.device: '{device}' is not"):
        load_model(ModelConfig(path=str(folder), device=device))


def test_auto_is_a_gpu_where_there_is_one(tmp_path):
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    assert load_model(replace(dummy(tmp_path), device="auto")).device.type == kind
