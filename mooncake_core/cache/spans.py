"""Where tokens of a sequence lie in a pool, as few pieces as its pages allow. Pure.

A slot is a token's row in `KvPool.keys(layer)`: page * page_tokens + place in the page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from mooncake_core.cache.kv_pool import KvPool
from mooncake_core.transfer import crc32c_gather

Pieces: TypeAlias = "tuple[array[int], array[int]]"
"""Addresses and lengths, as array("Q")."""


def paired_runs(
    source_pages: Sequence[int],
    target_pages: Sequence[int],
    page_tokens: int,
    begin: int,
    end: int,
) -> Iterator[tuple[int, int, int]]:
    """Cut tokens [begin, end) of a sequence that lies in two pools into runs.

    Yields:
        (source slot, target slot, tokens), each consecutive on both sides and as long as can be.
    """
    run: tuple[int, int, int] | None = None
    for token in range(begin - begin % page_tokens, end, page_tokens):
        first, last = max(begin, token), min(end, token + page_tokens)
        index, place = token // page_tokens, first - token
        source = source_pages[index] * page_tokens + place
        target = target_pages[index] * page_tokens + place
        if run is not None and (run[0] + run[2], run[1] + run[2]) == (source, target):
            run = (run[0], run[1], run[2] + last - first)
            continue
        if run is not None:
            yield run
        run = (source, target, last - first)
    if run is not None:
        yield run


def layer_pieces(pool: KvPool, layer: int, pages: Sequence[int], begin: int, end: int) -> Pieces:
    """Return where K of tokens [begin, end) of `layer` lies, in order, and then V."""
    addresses, lengths = array("Q"), array("Q")
    token_bytes = pool.shape.token_bytes
    runs = list(paired_runs(pages, pages, pool.shape.page_tokens, begin, end))
    for kv in (0, 1):
        base = pool.address + pool.offset(layer, kv, 0)
        addresses.extend(base + slot * token_bytes for slot, _, _ in runs)
        lengths.extend(count * token_bytes for _, _, count in runs)
    return addresses, lengths


def layer_checksum(pool: KvPool, layer: int, pages: Sequence[int], tokens: int) -> int:
    """Return the CRC-32C over K and then V of the first `tokens` tokens of `layer`."""
    return crc32c_gather(*layer_pieces(pool, layer, pages, 0, tokens))
