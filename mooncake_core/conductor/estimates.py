"""How long things take, learned from what they took. Pure.

Every estimator starts from a seed and is corrected by observations that are clipped to a factor of
what was expected, so that one stall on a busy machine moves it a little and nonsense not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_CLIP = 4.0
"""An observation counts as at most this many times, at least this fraction of the expected."""
_FORGET = 0.95
"""Weight of the past at each observation: the last twenty count."""
_PRIOR_FLOOR = 0.01
"""Least weight of the seed, in observations: enough to settle what they leave open."""


@dataclass(frozen=True, kw_only=True)
class PrefillCost:
    """Seconds to prefill n tokens of which p are reused: a + b (n - p) + c (n^2 - p^2).

    Source: FAST '25 §6.1 fits a polynomial in length and prefix hit. The square is attention's.
    """

    base_s: float
    token_s: float
    square_s: float

    def seconds(self, tokens: int, reused: int) -> float:
        """Return the estimate for `tokens` of which the first `reused` are not computed."""
        assert 0 <= reused <= tokens, (reused, tokens)
        return sum(self.terms(tokens, reused))

    def terms(self, tokens: int, reused: int) -> tuple[float, float, float]:
        """Return the three summands."""
        return (
            self.base_s,
            self.token_s * (tokens - reused),
            self.square_s * (tokens * tokens - reused * reused),
        )


class PrefillModel:
    """The PrefillCost of one instance, corrected by what its prefills took.

    Each coefficient is the seed's times a factor; the factors are a least-squares fit of relative
    errors, pulled towards 1 by the seed.
    """

    def __init__(self, tokens_per_s: float) -> None:
        token_s = 1.0 / (tokens_per_s if tokens_per_s > 0 else 1000.0)
        # Attention doubles the cost of a token at 25,000 tokens of context: between the 75,000 of
        # a 70B model and the 4,000 of a 135M one.
        self._seed = PrefillCost(base_s=0.02, token_s=token_s, square_s=2e-5 * token_s)
        self._prior = 1.0
        self._normal = [[0.0] * 3 for _ in range(3)]
        self._moment = [0.0] * 3
        self.cost = self._seed

    def observe(self, tokens: int, reused: int, took_s: float) -> None:
        """Learn that a prefill took `took_s` seconds of compute and sending."""
        expected_s = self.cost.seconds(tokens, reused)
        took_s = min(max(took_s, expected_s / _CLIP), expected_s * _CLIP)
        unit_s = max(took_s, expected_s)
        row = [term / unit_s for term in self._seed.terms(tokens, reused)]
        for i in range(3):
            self._moment[i] = _FORGET * self._moment[i] + row[i] * took_s / unit_s
            for j in range(3):
                self._normal[i][j] = _FORGET * self._normal[i][j] + row[i] * row[j]
        self._prior = max(_PRIOR_FLOOR, _FORGET * _FORGET * self._prior)
        normal = [
            [x + (i == j) * self._prior for j, x in enumerate(line)]
            for i, line in enumerate(self._normal)
        ]
        moment = [x + self._prior for x in self._moment]
        factors = [min(max(x, 0.02), 50.0) for x in _solve3(normal, moment)]
        self.cost = PrefillCost(
            base_s=self._seed.base_s * factors[0],
            token_s=self._seed.token_s * factors[1],
            square_s=self._seed.square_s * factors[2],
        )


def _solve3(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve a symmetric positive definite 3 x 3 system by elimination."""
    rows = [[*line, right[i]] for i, line in enumerate(matrix)]
    for i in range(3):
        for j in range(i + 1, 3):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    result = [0.0] * 3
    for i in (2, 1, 0):
        known = sum(rows[i][j] * result[j] for j in range(i + 1, 3))
        result[i] = (rows[i][3] - known) / rows[i][i]
    return result


class LoadModel:
    """Seconds a byte that a prefill waits for blocks from the store, as a moving average."""

    def __init__(self, rate_bytes_per_s: float = 1e9) -> None:
        self.byte_s = 1.0 / rate_bytes_per_s

    def observe(self, size_bytes: int, waited_s: float) -> None:
        """Learn that loading `size_bytes` made compute wait `waited_s`; 0 bytes teach nothing."""
        if size_bytes <= 0:
            return
        # Loads that hide behind compute cost nothing; the floor keeps the clip able to rise again.
        seen = min(max(waited_s / size_bytes, self.byte_s / _CLIP, 1e-12), self.byte_s * _CLIP)
        self.byte_s += 0.2 * (seen - self.byte_s)


_BATCH_SLOPE = 0.0187
"""One more sequence lengthens a step by this share. Source: FAST '25 Fig. 14, decode at 8k."""


@dataclass(frozen=True)
class StepTimes:
    """Decode step time by batch size, as far as it has been seen."""

    seconds_by_batch: Mapping[int, float] = field(default_factory=dict)

    def seconds(self, batch: int) -> float:
        """Return the step time at `batch`, from the nearest size seen; 0 while none was."""
        if not self.seconds_by_batch:
            return 0.0
        nearest = min(self.seconds_by_batch, key=lambda seen: (abs(seen - batch), seen))
        return self.seconds_by_batch[nearest] * (1.0 + _BATCH_SLOPE * max(0, batch - nearest))

    def observed(self, batch: int, step_s: float) -> StepTimes:
        """Return the times after a step of `step_s` at `batch`; idle reports change nothing."""
        if batch < 1 or step_s <= 0:
            return self
        old_s = self.seconds_by_batch.get(batch, step_s)
        step_s = min(step_s, _CLIP * old_s)
        return StepTimes({**self.seconds_by_batch, batch: old_s + 0.3 * (step_s - old_s)})
