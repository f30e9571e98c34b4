"""Other architectures through transformers, over the same paged pool."""

import sys

import pytest
import torch
import transformers

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.config.tables import ModelConfig
from mooncake_core.errors import ModelError
from mooncake_core.model import SequenceInput, load_model
from tests.model import tiny

SHAPE = {
    "vocab_size": tiny.VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
OTHERS = {
    "gpt_neox": transformers.GPTNeoXConfig(**SHAPE),
    "gpt2": transformers.GPT2Config(
        vocab_size=tiny.VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=512
    ),
    "olmo2": transformers.Olmo2Config(**SHAPE, num_key_value_heads=2),
    "granite": transformers.GraniteConfig(**SHAPE, num_key_value_heads=2, logits_scaling=4.0),
    "qwen3_moe": transformers.Qwen3MoeConfig(
        **SHAPE, num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_chunks_and_decodes_give_the_logits_of_transformers(tmp_path, kind):
    theirs = tiny.build(OTHERS[kind])
    theirs.save_pretrained(tmp_path)
    ours = tiny.load(tmp_path)
    assert ours.kernel_class.startswith("transformers")
    pool = KvPool(ours.kv_shape, 20)
    tokens, other = tiny.tokens_of(100), tiny.tokens_of(50, seed=1)
    pages, others = torch.randperm(10).tolist(), list(range(10, 20))
    tiny.feed(ours, pool, pages, tokens[:99], chunk=40)
    sequences = [
        SequenceInput(pages=pages, start=99, length=1),
        SequenceInput(pages=others, start=0, length=50),
    ]
    logits = ours.forward(torch.tensor([tokens[99], *other]), sequences, pool)
    expected = [tiny.reference(theirs, own)[-1] for own in (tokens, other)]
    assert (logits - torch.stack(expected)).abs().max() < 1e-5


def test_both_backends_give_the_same_logits(tmp_path):
    tiny.save("qwen3", tmp_path)
    own, other = (tiny.load(tmp_path, backend=name) for name in ("native", "transformers"))
    assert own.kv_shape == other.kv_shape
    results = [
        tiny.feed(model, KvPool(model.kv_shape, 8), range(8), tiny.tokens_of(100))
        for model in (own, other)
    ]
    assert (results[0] - results[1]).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            transformers.Gemma2Config(**SHAPE, num_key_value_heads=2, head_dim=16),
            "sliding_attention",
        ),
        (
            transformers.DeepseekV3Config(
                **SHAPE, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
                first_k_dense_replace=2, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
                qk_nope_head_dim=8, v_head_dim=8,
            ),
            "paged cache",
        ),
    ],
)  # fmt: skip
def test_attention_that_the_pool_cannot_hold_is_refused(tmp_path, config, problem):
    tiny.build(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=problem):
        tiny.load(tmp_path)


def test_random_weights_are_the_same_in_every_load(tmp_path):
    OTHERS["gpt_neox"].save_pretrained(tmp_path)
    config = ModelConfig(path=f"dummy:{tmp_path / 'config.json'}", dtype="float32", device="cpu")
    models = [load_model(config) for _ in range(2)]
    results = [
        tiny.feed(model, KvPool(model.kv_shape, 2), range(2), tiny.tokens_of(9)) for model in models
    ]
    assert torch.equal(*results)


def test_a_configuration_without_a_model_type_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 300}')
    with pytest.raises(ModelError, match="transformers cannot load it"):
        load_model(ModelConfig(path=f"dummy:{tmp_path / 'config.json'}", device="cpu"))


def test_without_transformers_it_says_what_to_install(tmp_path, monkeypatch):
    tiny.build(OTHERS["gpt_neox"]).save_pretrained(tmp_path)
    monkeypatch.delitem(sys.modules, "mooncake_core.model.transformers_backend", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match="pip install"):
        tiny.load(tmp_path)


def test_hooks_see_every_layer_before_and_after(tmp_path):
    seen = []

    class Hooks:
        def before_layer(self, layer):
            seen.append(("before", layer))

        def after_layer(self, layer):
            seen.append(("after", layer))

    tiny.save("qwen3", tmp_path)
    one = [SequenceInput(pages=[0], start=0, length=1)]
    for backend in ("native", "transformers"):
        model = tiny.load(tmp_path, backend=backend)
        seen.clear()
        model.forward(torch.tensor([1]), one, KvPool(model.kv_shape, 1), Hooks())
        assert seen == [(when, layer) for layer in range(3) for when in ("before", "after")]
