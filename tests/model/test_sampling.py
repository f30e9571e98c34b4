"""Sampling: what is kept, how often, and that nothing but seed and position decides."""

import pytest
import torch

from mooncake_core.messages import Sampling
from mooncake_core.model.sampling import sample

LOGITS = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()


def draws(sampling, count=2000, logits=LOGITS):
    rows = logits.expand(count, -1)
    return sample(rows, [sampling] * count, range(count))


def shares(tokens, vocab=4):
    return [tokens.count(token) / len(tokens) for token in range(vocab)]


def test_temperature_zero_takes_the_likeliest():
    assert set(draws(Sampling(temperature=0))) == {0}


def test_tokens_come_as_often_as_their_chance_says():
    assert shares(draws(Sampling(seed=3))) == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=0.04)


def test_a_low_temperature_sharpens_and_a_high_one_flattens():
    assert shares(draws(Sampling(temperature=0.2)))[0] > 0.7
    assert shares(draws(Sampling(temperature=2)))[3] > 0.14


def test_top_k_keeps_the_k_likeliest():
    assert shares(draws(Sampling(top_k=2))) == pytest.approx([4 / 7, 3 / 7, 0, 0], abs=0.04)


def test_top_k_beyond_the_vocabulary_keeps_all():
    assert set(draws(Sampling(top_k=99))) == {0, 1, 2, 3}


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, {0}), (0.6, {0, 1}), (0.95, {0, 1, 2, 3})])
def test_top_p_keeps_the_fewest_that_reach_it(top_p, kept):
    assert set(draws(Sampling(top_p=top_p))) == kept


def test_top_p_looks_at_the_whole_vocabulary_where_it_is_flat():
    tokens = draws(Sampling(top_p=0.99), count=300, logits=torch.zeros(5000))
    assert max(tokens) > 4000


def test_equal_seed_and_position_give_an_equal_token_whatever_the_batch():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 50, generator=generator)
    samplings = [Sampling(seed=seed, top_p=0.9) for seed in range(6)]
    together = sample(rows, samplings, [9] * 6)
    alone = [
        sample(row[None], [sampling], [9])[0] for row, sampling in zip(rows, samplings, strict=True)
    ]
    assert together == alone


def test_other_seeds_and_positions_give_other_sequences():
    first, second = draws(Sampling(seed=1), 50), draws(Sampling(seed=2), 50)
    assert first != second
    assert first == draws(Sampling(seed=1), 50)
    assert len(set(first)) > 1
