"""On the grid, what a chunk gives depends on its position, its tokens and the past bytes alone."""

import pytest
import torch

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.config.tables import ModelConfig
from mooncake_core.model import load_model
from mooncake_core.model_spec.checkpoint import BUILT_IN
from tests.model import tiny

GRID = 256
DTYPES = ("float32", "bfloat16")


@pytest.fixture(scope="module", params=DTYPES)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    tiny.save("llama", folder)
    return tiny.load(folder, dtype=request.param)


def kv_of(pool, pages, tokens):
    """Return the bytes of the first `tokens` tokens of every layer, in token order."""
    page_tokens = pool.shape.page_tokens
    slots = torch.tensor(
        [page * page_tokens + slot for page in pages for slot in range(page_tokens)]
    )
    layers = range(pool.shape.layers)
    parts = [cache[slots[:tokens]] for at in layers for cache in (pool.keys(at), pool.values(at))]
    return torch.stack(parts)


def copy_prefix(source, source_pages, target, target_pages, tokens):
    """Copy the KV of whole pages from one pool to another, as a cache would."""
    count = tokens // source.shape.page_tokens
    for layer in range(source.shape.layers):
        for read, write in ((source.keys, target.keys), (source.values, target.values)):
            shape = (-1, source.shape.page_tokens, *read(layer).shape[1:])
            write(layer).view(shape)[target_pages[:count]] = read(layer).view(shape)[
                source_pages[:count]
            ]


def run_twice(model, tokens, reused, seed):
    """Return (logits, KV) as computed on a run of pages, and with a reused prefix elsewhere."""
    pages = -(-len(tokens) // model.kv_shape.page_tokens)
    whole, other = KvPool(model.kv_shape, pages + 3), KvPool(model.kv_shape, 2 * pages)
    run = list(range(3, pages + 3))
    scattered = torch.randperm(2 * pages, generator=torch.Generator().manual_seed(seed)).tolist()
    logits = tiny.feed(model, whole, run, tokens, chunk=GRID)
    copy_prefix(whole, run, other, scattered, reused)
    again = tiny.feed(model, other, scattered, tokens[reused:], start=reused, chunk=GRID)
    size = len(tokens)
    return (logits, kv_of(whole, run, size)), (again, kv_of(other, scattered, size))


@pytest.mark.parametrize("reused", [0, 256, 512])
@pytest.mark.parametrize("size", [513, 700, 768])
def test_a_reused_prefix_gives_the_bits_of_a_recomputed_one(model, reused, size):
    (logits, kv), (again, kv_again) = run_twice(model, tiny.tokens_of(size), reused, seed=reused)
    assert torch.equal(logits, again)
    assert torch.equal(kv, kv_again)


def test_decoding_gives_the_same_bits_on_scattered_pages(model):
    tokens = tiny.tokens_of(100)
    results = []
    for pages in (list(range(8)), [7, 2, 5, 0, 6, 1, 3, 4]):
        pool = KvPool(model.kv_shape, 8)
        tiny.feed(model, pool, pages, tokens[:60])
        results.append(tiny.feed(model, pool, pages, tokens[60:], start=60, chunk=1))
    assert torch.equal(*results)


def test_old_bytes_in_a_page_change_nothing(model):
    tokens = tiny.tokens_of(300)
    clean, dirty = KvPool(model.kv_shape, 20), KvPool(model.kv_shape, 20)
    for layer in range(model.kv_shape.layers):
        dirty.keys(layer).fill_(torch.nan)
        dirty.values(layer).fill_(torch.nan)
    results = [tiny.feed(model, pool, range(20), tokens, chunk=GRID) for pool in (clean, dirty)]
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_built_in_model_reuses_a_prefix_bit_for_bit(dtype):
    model = load_model(ModelConfig(path=BUILT_IN, dtype=dtype, device="cpu"))
    tokens = tiny.tokens_of(2 * GRID + 20, vocab=model.vocab)
    (logits, kv), (again, kv_again) = run_twice(model, tokens, 2 * GRID, seed=1)
    assert torch.equal(logits, again)
    assert torch.equal(kv, kv_again)
