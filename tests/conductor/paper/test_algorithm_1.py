"""FAST '25 §6.1, Algorithm 1: KVCache-centric scheduling. One claim a test."""

from mooncake_core.conductor.estimates import PrefillCost
from mooncake_core.conductor.policy import Ask, Choice, Refuse, choose, plan_prefill
from tests.conductor.views import decode, prefill, view

SLOW_LOAD = 1.0
"""Seconds a token: loading never beats computing, so that only the ratio decides."""


def test_ttft_is_transfer_plus_queue_plus_prefill() -> None:
    """Line 13: TTFT = T_transfer + T_queue + T_prefill."""
    ask = Ask(prompt_tokens=1000, max_tokens=1, store_tokens=512)
    plan = plan_prefill(view(), ask, prefill("p", queue_s=3.0))
    assert plan.queue_s == 3.0
    assert plan.transfer_s == 512 * 1e-5
    assert plan.prefill_s == (1000 - 512) * 1e-3
    assert plan.ttft_s == plan.queue_s + plan.transfer_s + plan.prefill_s


def test_the_shortest_ttft_wins_over_the_longest_prefix() -> None:
    """Lines 14 to 16: the minimum over all instances, not the best match."""
    ask = Ask(prompt_tokens=2000, max_tokens=1, local_tokens={"warm": 1792})
    busy = view(prefill("warm", queue_s=5.0), prefill("cold"))
    idle = view(prefill("warm", queue_s=0.5), prefill("cold"))
    assert chosen(choose(busy, ask, 0.0)) == "cold"
    assert chosen(choose(idle, ask, 0.0)) == "warm"


def test_a_match_above_the_threshold_is_transferred() -> None:
    """Lines 6 to 9: best_len / prefix_len > threshold means prefix = best_len."""
    ask = Ask(prompt_tokens=2000, max_tokens=1, local_tokens={"p": 512}, store_tokens=1280)
    plan = plan_prefill(view(), ask, prefill("p", load_token_s=SLOW_LOAD))
    assert plan.fetch_tokens == 1280 - 512
    assert plan.use_store


def test_a_match_at_the_threshold_is_computed_again() -> None:
    """Lines 10 to 12: otherwise prefix = the local one and T_transfer = 0."""
    ask = Ask(prompt_tokens=2000, max_tokens=1, local_tokens={"p": 512}, store_tokens=1024)
    plan = plan_prefill(view(), ask, prefill("p", load_token_s=SLOW_LOAD))
    assert plan.fetch_tokens == 0 and plan.transfer_s == 0
    assert plan.prefill_s == (2000 - 512) * 1e-3
    assert not plan.use_store


def test_a_transfer_that_beats_computing_is_made_below_the_threshold_too() -> None:
    """§6.1, text: recompute where the additional prefill takes less time than the transfer."""
    ask = Ask(prompt_tokens=2000, max_tokens=1, local_tokens={"p": 512}, store_tokens=1024)
    plan = plan_prefill(view(), ask, prefill("p"))
    assert plan.fetch_tokens == 512


def test_an_instance_without_a_prefix_fetches_whatever_there_is() -> None:
    """The ratio has no value at prefix_len = 0; the rule here is best > threshold * 0."""
    ask = Ask(prompt_tokens=2000, max_tokens=1, store_tokens=256)
    assert plan_prefill(view(), ask, prefill("p", load_token_s=SLOW_LOAD)).fetch_tokens == 256


def test_a_ttft_above_the_slo_is_rejected() -> None:
    """Lines 18 to 20: TTFT > TTFT_SLO is answered with HTTP 429."""
    ask = Ask(prompt_tokens=2000, max_tokens=1)
    outcome = choose(view(prefill("p"), ttft_slo_s=1.9), ask, 0.0)
    assert isinstance(outcome, Refuse)
    assert outcome.reason == "ttft_slo"
    assert "2.00 s" in outcome.message and "1.9 s" in outcome.message
    assert isinstance(choose(view(prefill("p"), ttft_slo_s=2.1), ask, 0.0), Choice)


def test_a_tbt_above_the_slo_is_rejected() -> None:
    """Lines 18 to 20: TBT > TBT_SLO as well."""
    steps = decode("d").steps.observed(1, 0.5)
    cluster = view(prefill("p"), decode("d", steps=steps), tbt_slo_s=0.4)
    outcome = choose(cluster, Ask(prompt_tokens=10, max_tokens=1), 0.0)
    assert isinstance(outcome, Refuse)
    assert outcome.reason == "tbt_slo"


def test_the_decode_instance_is_the_least_loaded() -> None:
    """Line 17: SelectDecodingInstance balances the load."""
    cluster = view(prefill("p"), decode("busy", running=8), decode("idle", running=1))
    outcome = choose(cluster, Ask(prompt_tokens=10, max_tokens=1), 0.0)
    assert isinstance(outcome, Choice)
    assert outcome.decode.instance_id == "idle"


def test_the_cost_model_gives_the_prefill_times_of_figure_14() -> None:
    """FAST '25 Fig. 14, prefix 0 %: T(n, p) = a + b (n - p) + c (n^2 - p^2) fits within 4 %."""
    cost = PrefillCost(base_s=0.0677, token_s=1.0977e-4, square_s=7.4224e-10)
    measured = {8: 1.00, 16: 2.06, 32: 4.48, 64: 10.59, 128: 27.51}
    for thousands, seconds in measured.items():
        estimate = cost.seconds(thousands * 1024, 0)
        assert abs(estimate / seconds - 1) < 0.04, (thousands, estimate, seconds)


def test_a_prefix_of_95_percent_saves_most_of_the_time_in_figure_14() -> None:
    """FAST '25 Fig. 14, prefix 95 %: 92 % of the prefill time at 128k, loads at 127 GB/s."""
    cost = PrefillCost(base_s=0.0677, token_s=1.0977e-4, square_s=7.4224e-10)
    tokens = 128 * 1024
    instance = prefill("p", cost=cost, load_token_s=320 * 1024 / 127.4e9)
    cold = plan_prefill(view(), Ask(prompt_tokens=tokens, max_tokens=1), instance)
    ask = Ask(prompt_tokens=tokens, max_tokens=1, store_tokens=int(0.95 * tokens))
    reused = plan_prefill(view(), ask, instance)
    assert 0.90 < 1 - reused.ttft_s / cold.ttft_s < 0.94


def chosen(outcome: Choice | Refuse) -> str:
    """Return the prefill instance of a choice."""
    assert isinstance(outcome, Choice), outcome
    return outcome.prefill.instance.instance_id
