"""The own runtime against transformers on the same weights."""

import pytest
import torch

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.model import SequenceInput
from tests.model import tiny


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    theirs = tiny.save(request.param, folder)
    return tiny.load(folder), theirs


def test_prompt_logits_are_those_of_transformers(pair):
    ours, theirs = pair
    tokens = tiny.tokens_of(300)
    logits = tiny.feed(ours, KvPool(ours.kv_shape, 32), range(32), tokens)
    assert (logits - tiny.reference(theirs, tokens)[-1]).abs().max() < 1e-5


def test_prompt_in_chunks_and_scattered_pages_gives_the_same_logits(pair):
    ours, theirs = pair
    tokens = tiny.tokens_of(300)
    pages = torch.randperm(40).tolist()
    logits = tiny.feed(ours, KvPool(ours.kv_shape, 40), pages, tokens, chunk=77)
    assert (logits - tiny.reference(theirs, tokens)[-1]).abs().max() < 1e-5


def test_ragged_batch_of_prompts_and_decodes_gives_the_logits_of_each_alone(pair):
    ours, theirs = pair
    pool = KvPool(ours.kv_shape, 64)
    prompts = [tiny.tokens_of(count, seed=count) for count in (5, 33, 130)]
    pages = [list(range(0, 2)), [9, 4, 30], list(range(40, 50))]
    starts = [0, 20, 129]
    for prompt, own, start in zip(prompts, pages, starts, strict=True):
        if start:
            tiny.feed(ours, pool, own, prompt[:start])
    sequences = [
        SequenceInput(pages=own, start=start, length=len(prompt) - start)
        for prompt, own, start in zip(prompts, pages, starts, strict=True)
    ]
    new = [token for prompt, start in zip(prompts, starts, strict=True) for token in prompt[start:]]
    logits = ours.forward(torch.tensor(new), sequences, pool)
    for row, prompt in zip(logits, prompts, strict=True):
        assert (row - tiny.reference(theirs, prompt)[-1]).abs().max() < 1e-5
