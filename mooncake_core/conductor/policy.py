"""Where a request runs, or why it does not. Pure: the simulator drives this same code.

Source: Algorithm 1 of the FAST '25 paper (§6.1). Three things that it leaves open are decided here:

* Its ratio best_len / prefix_len has no value at prefix_len = 0. Here the rule is the product
  best_len > threshold * prefix_len, so an instance that holds nothing fetches whatever there is.
* Its algorithm computes the difference again whenever the ratio is at most the threshold; its text
  fetches whenever that beats computing. Here either reason is enough to fetch.
* It fetches from the best instance. Here every block that is computed is also in the store, which
  all instances reach, so the best match for an instance is the longer of its own and the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from mooncake_core.conductor.estimates import PrefillCost, StepTimes

T = TypeVar("T")

_TIE = 0.05
"""Estimates this close are equal: they are not more exact than that, and a fixed order among
near-equals would send everything to one instance."""

Reason = Literal["no_prefill", "no_decode", "too_large", "decode_full", "ttft_slo", "tbt_slo"]


@dataclass(frozen=True, kw_only=True)
class PrefillView:
    """A prefill instance as the policy sees it."""

    instance_id: str
    url: str
    peer_id: str
    """Of its transfer engine, which decode lets write."""
    queue_s: float
    """Until it has worked off what it was given."""
    cost: PrefillCost
    load_token_s: float
    """Seconds to load one token's KV from the store."""
    capacity_tokens: int


@dataclass(frozen=True, kw_only=True)
class DecodeView:
    """A decode instance as the policy sees it."""

    instance_id: str
    url: str
    running: int
    """Sequences that it has been given."""
    max_batch: int
    free_pages: int
    pages: int
    page_tokens: int
    steps: StepTimes


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """All that the policy knows, at one instant."""

    prefills: tuple[PrefillView, ...]
    decodes: tuple[DecodeView, ...]
    ttft_slo_s: float
    tbt_slo_s: float
    balancing_threshold: float
    """`kvcache_balancing_threshold`."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request as the policy sees it."""

    prompt_tokens: int
    max_tokens: int
    local_tokens: Mapping[str, int] = field(default_factory=dict)
    """Prefix in each instance's own pages; whole blocks, at least one token short of the prompt."""
    store_tokens: int = 0
    """Prefix in the store, cut in the same way."""
    avoid: frozenset[str] = frozenset()
    """Instances, by id or URL, that are taken only if there is no other."""
    is_admitted: bool = False
    """A retry: it is not refused for an SLO any more."""


@dataclass(frozen=True, kw_only=True)
class PrefillPlan:
    """TTFT_i = T_transfer + T_queue + T_prefill of one instance, and what it rests on."""

    instance: PrefillView
    local_tokens: int
    fetch_tokens: int
    use_store: bool
    """False: the store has more than the instance, and computing it is cheaper than loading it."""
    queue_s: float
    transfer_s: float
    prefill_s: float

    @property
    def ttft_s(self) -> float:
        """Estimated time to the first token."""
        return self.queue_s + self.transfer_s + self.prefill_s

    @property
    def work_s(self) -> float:
        """How long the instance is busy with it."""
        return self.transfer_s + self.prefill_s


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Run it there."""

    prefill: PrefillPlan
    decode: DecodeView
    tbt_s: float
    """Estimated time between tokens; 0 where nothing is known yet."""
    pages: int
    """That decode will reserve."""


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """Do not run it."""

    reason: Reason
    message: str
    """For the user."""
    retry_after_s: float


def choose(view: ClusterView, ask: Ask, random_unit: float) -> Choice | Refuse:
    """Return where `ask` runs, or why not.

    Args:
        view: is not changed; whoever carries the choice out counts it at once.
        ask: what is to run.
        random_unit: in [0, 1); settles ties.
    """
    absent = _absent(view, ask)
    if absent is not None:
        return absent
    fitting = [p for p in view.prefills if p.capacity_tokens >= ask.prompt_tokens]
    plans = [plan_prefill(view, ask, p) for p in _preferred(fitting, ask.avoid)]
    plan, random_unit = _least(plans, lambda plan: plan.ttft_s, random_unit)
    if plan.ttft_s > view.ttft_slo_s and not ask.is_admitted:
        return _over("ttft_slo", "first token", plan.ttft_s, view.ttft_slo_s)

    roomy = [d for d in view.decodes if d.free_pages >= _pages(ask, d)]
    if not roomy:
        return Refuse(
            reason="decode_full",
            message="no decode instance has room now for "
            f"{ask.prompt_tokens} + {ask.max_tokens} tokens",
            retry_after_s=1.0,
        )
    decode, _ = _least(_preferred(roomy, ask.avoid), lambda d: _fullness(ask, d), random_unit)
    tbt_s = _tbt_s(decode)
    if tbt_s > view.tbt_slo_s and not ask.is_admitted:
        return _over("tbt_slo", "time between tokens", tbt_s, view.tbt_slo_s)
    return Choice(prefill=plan, decode=decode, tbt_s=tbt_s, pages=_pages(ask, decode))


def plan_prefill(view: ClusterView, ask: Ask, instance: PrefillView) -> PrefillPlan:
    """Return what `ask` would cost on `instance`: the loop body of Algorithm 1."""
    local = ask.local_tokens.get(instance.instance_id, 0)
    best = max(local, ask.store_tokens)
    transfer_s = (best - local) * instance.load_token_s
    compute_s = instance.cost.seconds(ask.prompt_tokens, local)
    fetched_s = instance.cost.seconds(ask.prompt_tokens, best)
    is_far_longer = best > view.balancing_threshold * local
    fetches = best > local and (is_far_longer or transfer_s + fetched_s < compute_s)
    return PrefillPlan(
        instance=instance,
        local_tokens=local,
        fetch_tokens=best - local if fetches else 0,
        use_store=fetches or best == local,
        queue_s=instance.queue_s,
        transfer_s=transfer_s if fetches else 0.0,
        prefill_s=fetched_s if fetches else compute_s,
    )


def _absent(view: ClusterView, ask: Ask) -> Refuse | None:
    """Refuse what no instance could do however idle."""
    if not view.prefills:
        return Refuse(reason="no_prefill", message="no prefill instance is up", retry_after_s=1.0)
    if not view.decodes:
        return Refuse(reason="no_decode", message="no decode instance is up", retry_after_s=1.0)
    largest_prompt = max(p.capacity_tokens for p in view.prefills)
    largest_answer = max(d.pages * d.page_tokens for d in view.decodes)
    total = ask.prompt_tokens + ask.max_tokens
    fits = any(d.pages >= _pages(ask, d) for d in view.decodes)
    if ask.prompt_tokens <= largest_prompt and fits:
        return None
    return Refuse(
        reason="too_large",
        message=f"prompt and answer need {ask.prompt_tokens} + {ask.max_tokens} = {total} tokens; "
        f"the largest prefill instance holds {largest_prompt}, the largest decode instance "
        f"{largest_answer}",
        retry_after_s=0.0,
    )


I = TypeVar("I", PrefillView, DecodeView)  # noqa: E741  an instance of either kind


def _preferred(instances: Sequence[I], avoid: frozenset[str]) -> Sequence[I]:
    wanted = [i for i in instances if not {i.instance_id, i.url} & avoid]
    return wanted or instances


def _least(items: Sequence[T], key: Callable[[T], float], random_unit: float) -> tuple[T, float]:
    """Return an item with the least key, near-equals by lot, and what is left of the lot."""
    least = min(map(key, items))
    ties = [item for item in items if key(item) <= least * (1 + _TIE)]
    lot = random_unit * len(ties)
    return ties[int(lot)], lot % 1.0


def _pages(ask: Ask, decode: DecodeView) -> int:
    return -(-(ask.prompt_tokens + ask.max_tokens) // decode.page_tokens)


def _fullness(ask: Ask, decode: DecodeView) -> float:
    """Return how full decode would be, by the scarcer of slots and pages; above 1 it queues."""
    used_pages = decode.pages - decode.free_pages + _pages(ask, decode)
    return max((decode.running + 1) / decode.max_batch, used_pages / decode.pages)


def _tbt_s(decode: DecodeView) -> float:
    """Return the step time with one more; sequences beyond the batch take turns."""
    running = decode.running + 1
    turns = max(1.0, running / decode.max_batch)
    return decode.steps.seconds(min(running, decode.max_batch)) * turns


def _over(reason: Reason, what: str, estimate_s: float, slo_s: float) -> Refuse:
    return Refuse(
        reason=reason,
        message=f"the {what} is estimated at {estimate_s:.2f} s; at most {slo_s:g} s is promised",
        retry_after_s=min(max(estimate_s - slo_s, 1.0), 60.0),
    )
