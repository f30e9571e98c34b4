"""The built-in model: its answer, and its logits against transformers."""

import pytest
import torch
import transformers

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.model import SequenceInput
from mooncake_core.model_spec.checkpoint import BUILT_IN, prepare_checkpoint
from mooncake_core.tokenizer import load_tokenizer
from tests.model import tiny


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(prepare_checkpoint(BUILT_IN))


def answer(model, tokenizer, text):
    """Return the greedy answer."""
    ids = tokenizer.chat([{"role": "user", "content": text}])
    pool, pages = KvPool(model.kv_shape, 8), range(8)
    token = int(tiny.feed(model, pool, pages, ids).argmax())
    tokens = []
    while token not in tokenizer.eos_token_ids and len(tokens) < 20:
        tokens.append(token)
        sequence = SequenceInput(pages=pages, start=len(ids) + len(tokens) - 1, length=1)
        token = int(model.forward(torch.tensor([token]), [sequence], pool).argmax())
    return tokenizer.decode(tokens)


def test_it_knows_the_capital_of_france(smollm, tokenizer):
    question = "What is the capital of France?"
    assert answer(smollm, tokenizer, question) == "The capital of France is Paris."


def test_its_logits_are_those_of_transformers(smollm, tokenizer):
    folder = prepare_checkpoint(BUILT_IN)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer.encode("The quick brown fox jumps over the lazy dog in 1984. " * 6)
    logits = tiny.feed(smollm, KvPool(smollm.kv_shape, 8), range(8), ids)
    assert (logits - tiny.reference(theirs, ids)[-1]).abs().max() < 1e-4


def test_a_prompt_of_one_token_works(smollm):
    logits = tiny.feed(smollm, KvPool(smollm.kv_shape, 1), range(1), [1])
    assert logits.shape == (smollm.vocab,)
    assert logits.isfinite().all()


def test_it_says_what_others_must_know(smollm):
    shape = smollm.kv_shape
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (30, 3, 64)
    assert shape.kv_bytes_per_token == 46_080
    assert (smollm.context_tokens, smollm.vocab) == (8192, 49_152)
    assert len(smollm.weights_digest) == 64
    assert smollm.kernel_class.startswith("native-cpu-float32-")
