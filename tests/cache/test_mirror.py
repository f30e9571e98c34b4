"""What a mirror copies, and what it leaves alone."""

import torch

from mooncake_core.cache.kv_pool import KvPool, KvShape
from mooncake_core.cache.mirror import KvMirror, device_pool

SHAPE = KvShape(layers=3, kv_heads=2, head_dim=4, dtype=torch.bfloat16, page_tokens=16)
PAGES = 5


def pool_of(seed: int) -> KvPool:
    generator = torch.Generator().manual_seed(seed)
    size = (SHAPE.pool_bytes(PAGES),)
    return KvPool(SHAPE, PAGES, torch.randint(256, size, dtype=torch.uint8, generator=generator))


def content(pool: KvPool) -> torch.Tensor:
    """Return a copy of the bytes: [layers, 2, pages, bytes of a page]."""
    layers = [pool.layer(layer).flatten(2) for layer in range(SHAPE.layers)]
    return torch.stack(layers).view(torch.uint8)


def test_an_upload_copies_these_pages_of_this_layer_and_nothing_else() -> None:
    host, device = pool_of(1), pool_of(2)
    before, expected = content(host), content(device)
    expected[1][:, [4, 0, 1]] = before[1][:, [4, 0, 1]]
    KvMirror(host, device).upload(1, [4, 0, 1])
    assert torch.equal(content(device), expected)
    assert torch.equal(content(host), before)


def test_a_download_copies_these_pages_of_this_layer_and_nothing_else() -> None:
    host, device = pool_of(1), pool_of(2)
    before, expected = content(device), content(host)
    expected[2][:, [3]] = before[2][:, [3]]
    KvMirror(host, device).download(2, [3])
    assert torch.equal(content(host), expected)
    assert torch.equal(content(device), before)


def test_no_pages_are_no_copy() -> None:
    host, device = pool_of(1), pool_of(2)
    mirror, expected = KvMirror(host, device), content(device)
    mirror.upload(0, [])
    assert torch.equal(content(device), expected)


def test_on_a_cpu_both_sides_are_one_pool() -> None:
    host = pool_of(1)
    mirror, expected = KvMirror(host, device_pool(host, torch.device("cpu"))), content(host)
    assert mirror.device is host
    mirror.upload(0, [1])
    mirror.download(0, [1])
    assert torch.equal(content(host), expected)
