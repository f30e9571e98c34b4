"""Choosing the next token. Pure: equal logits, sampling and position give an equal token.

Randomness is a hash of (seed, position), so prefill and decode draw from one sequence, whichever of
them writes a token, and a row's choice never depends on the rest of the batch.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from mooncake_core.messages import Sampling

_LIKELY = 1024
"""Tokens that are looked at first for top_p: sorting the whole vocabulary takes far longer."""


def sample(logits: Tensor, samplings: Sequence[Sampling], positions: Sequence[int]) -> list[int]:
    """Return the next token of each row.

    Args:
        logits: [rows, vocab] float32, on any device.
        samplings: one a row.
        positions: one a row: of the new token in its answer, 0 for the one that prefill writes.
    """
    assert len(logits) == len(samplings) == len(positions), (logits.shape, samplings, positions)
    greedy: list[int] = logits.argmax(-1).tolist()
    return [
        token
        if sampling.temperature == 0
        else _draw(row, sampling, _uniform(sampling.seed, position))
        for token, row, sampling, position in zip(greedy, logits, samplings, positions, strict=True)
    ]


def _uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    digest = hashlib.blake2b(struct.pack("<QQ", seed, position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def _draw(logits: Tensor, sampling: Sampling, uniform: float) -> int:
    logits = logits.double() / sampling.temperature
    if sampling.top_k == 0 and sampling.top_p == 1:
        return _pick(logits.softmax(0), uniform)
    chances, tokens = _ranked(logits, sampling)
    # A token stays if those before it have not reached top_p; the first always does.
    before = chances.cumsum(0) - chances
    return int(tokens[_pick(chances[before < sampling.top_p], uniform)])


def _ranked(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return chances, falling, and their tokens: at least those that the sampling keeps."""
    vocab = len(logits)
    if 0 < sampling.top_k < vocab:
        ranked, tokens = logits.topk(sampling.top_k)
        return ranked.softmax(0), tokens
    whole = logits.logsumexp(0)
    ranked, tokens = logits.topk(min(_LIKELY, vocab))
    chances = (ranked - whole).exp()
    if len(tokens) < vocab and chances.sum() < sampling.top_p:
        ranked, tokens = logits.sort(descending=True)
        chances = (ranked - whole).exp()
    return chances, tokens


def _pick(chances: Tensor, uniform: float) -> int:
    """Return the index at which the running sum of `chances` first exceeds uniform of the whole."""
    sums = chances.cumsum(0)
    index = torch.searchsorted(sums, sums[-1:] * uniform, right=True)
    return min(int(index), len(chances) - 1)
