"""The grid that prefill computes on. Pure.

Chunk i covers tokens [i * block_tokens, (i + 1) * block_tokens) of a prompt, whatever was cached,
so that a reused prefix and a recomputed one are equal bit for bit.
"""

from __future__ import annotations


def reusable_blocks(tokens: int, block_tokens: int) -> int:
    """Return how many leading blocks may be reused: the last token is always computed."""
    return (tokens - 1) // block_tokens


def chunks(tokens: int, block_tokens: int, first_block: int) -> list[tuple[int, int]]:
    """Return the grid's [begin, end) from `first_block` on; the last one may be short."""
    return [
        (begin, min(begin + block_tokens, tokens))
        for begin in range(first_block * block_tokens, tokens, block_tokens)
    ]
