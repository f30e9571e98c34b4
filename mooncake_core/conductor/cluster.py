"""The instance table: who is there, how busy each is, what each has. Pure.

What the conductor itself decides is counted at once and corrected by heartbeats: two requests that
arrive between two heartbeats do not both find the same idle instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from mooncake_core.conductor.estimates import LoadModel, PrefillModel, StepTimes
from mooncake_core.conductor.index import PrefixIndex
from mooncake_core.conductor.policy import Choice, ClusterView, DecodeView, PrefillView
from mooncake_core.config.tables import SloConfig
from mooncake_core.messages import (
    Heartbeat,
    InstanceInfo,
    InstanceLoad,
    ModelInfo,
    PrefillResult,
    Role,
)

Key = tuple[str, int]
"""(request id, attempt)."""


@dataclass
class Member:
    """One registered instance and what is known about it."""

    info: InstanceInfo
    seen_s: float
    """When it was last heard of."""
    load: InstanceLoad = field(default_factory=InstanceLoad)
    is_suspect: bool = False
    """A call to it failed; not used until it is heard of again."""


@dataclass
class PrefillMember(Member):
    """A prefill instance."""

    work_s: dict[Key, float] = field(default_factory=dict)
    """Estimated time of what it was given and has not ended."""
    clear_at_s: float = 0.0
    """When it will have worked that off."""
    model: PrefillModel = field(default_factory=lambda: PrefillModel(0.0))
    loads: LoadModel = field(default_factory=LoadModel)

    def corrected(self, load: InstanceLoad, now_s: float) -> None:
        """Take over the instance's own count of its queue, unless it has not seen all of ours."""
        self.load = load
        queued_s = load.queued_tokens * self.model.cost.token_s
        has_seen_all = load.queued_requests + load.running >= len(self.work_s)
        reported_s = now_s + queued_s
        self.clear_at_s = reported_s if has_seen_all else max(self.clear_at_s, reported_s)


@dataclass
class DecodeMember(Member):
    """A decode instance."""

    pages: dict[Key, int] = field(default_factory=dict)
    """Pages of what it was given and has not ended."""
    unreported_pages: int = 0
    """Given since its last heartbeat."""
    steps: StepTimes = field(default_factory=StepTimes)

    def corrected(self, load: InstanceLoad) -> None:
        """Take over the instance's own count."""
        self.load = load
        self.unreported_pages = 0
        self.steps = self.steps.observed(load.running, load.tbt_s)

    @property
    def free_pages(self) -> int:
        """What the instance said less what it was given since, and never more than we left it."""
        left = self.info.pages - sum(self.pages.values()) - self.load.quarantined_pages
        return max(0, min(left, self.load.free_pages - self.unreported_pages))


@dataclass(frozen=True)
class Registered:
    """The instance is in; `lost` are the ids that it replaces."""

    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegistrationRefused:
    """The instance does not fit the cluster; the message is for whoever runs it."""

    message: str


class Cluster:
    """The instances of one cluster, all serving one model.

    Args:
        slo: promised to users.
        balancing_threshold: of the policy.
        instance_ttl_s: an instance that is silent for longer is not used; for twice as long,
            forgotten.
        tokenizer_vocab: the conductor's; 0: unknown.
    """

    def __init__(
        self,
        *,
        slo: SloConfig,
        balancing_threshold: float,
        instance_ttl_s: float,
        tokenizer_vocab: int = 0,
    ) -> None:
        self._slo = slo
        self._threshold = balancing_threshold
        self._ttl_s = instance_ttl_s
        self._vocab = tokenizer_vocab
        self._prefills: dict[str, PrefillMember] = {}
        self._decodes: dict[str, DecodeMember] = {}
        self._index = PrefixIndex()

    @property
    def model(self) -> ModelInfo | None:
        """The model that all instances serve, with the kernels of those that prefill.

        None while there are no instances.
        """
        return next((member.info.model for member in self._all()), None)

    def register(self, info: InstanceInfo, now_s: float) -> Registered | RegistrationRefused:
        """Let an instance in. Registering again starts it anew; an older one at its URL is gone."""
        lost = tuple(
            member.info.instance_id
            for member in self._all()
            if member.info.url == info.url and member.info.instance_id != info.instance_id
        )
        others = [
            m.info for m in self._all() if m.info.instance_id not in (*lost, info.instance_id)
        ]
        problem = self._disagreement(info, others)
        if problem is not None:
            return RegistrationRefused(problem)
        for instance_id in lost:
            self.remove(instance_id)
        self._admit(info, now_s)
        return Registered(lost)

    def _admit(self, info: InstanceInfo, now_s: float) -> None:
        load = InstanceLoad(free_pages=info.pages)
        if info.role == "decode":
            known_decode = self._decodes.get(info.instance_id)
            if known_decode is None:
                self._decodes[info.instance_id] = DecodeMember(info, now_s, load)
            else:
                known_decode.info, known_decode.seen_s = info, now_s
                known_decode.is_suspect = False
            return
        self._index.add_instance(info.instance_id)
        known = self._prefills.get(info.instance_id)
        if known is None:
            model = PrefillModel(info.prefill_tokens_per_s)
            self._prefills[info.instance_id] = PrefillMember(info, now_s, load, model=model)
        else:
            known.info, known.seen_s, known.is_suspect = info, now_s, False

    def _disagreement(self, info: InstanceInfo, others: Sequence[InstanceInfo]) -> str | None:
        """Return how `info` differs from the cluster, with both values, or None."""
        if info.model.vocab < self._vocab:
            return (
                f"model.vocab: this {info.role} instance has {info.model.vocab}, "
                f"the conductor's tokenizer has {self._vocab}"
            )
        if not others:
            return None
        # A prefill instance, if there is one. Only those read each other's blocks: decode goes on
        # from what it was sent, on whatever processor it runs.
        theirs, shares_blocks = others[0].model, info.role == others[0].role == "prefill"
        differing = [
            f"model.{name}: this {info.role} instance has {mine!r}, the cluster has {known!r}"
            for name in theirs.__struct_fields__
            if (mine := getattr(info.model, name)) != (known := getattr(theirs, name))
            and (shares_blocks or name != "kernel_class")
        ]
        return "; ".join(differing) or None

    def heartbeat(self, beat: Heartbeat, now_s: float) -> bool:
        """Take in a heartbeat; False: unknown here or events were missed, it must register.

        Raises:
            ValueError: an event names a block that is not hexadecimal.
        """
        member = self._find(beat.instance_id)
        if member is None:
            return False
        member.seen_s = now_s
        member.is_suspect = False
        if isinstance(member, DecodeMember):
            member.corrected(beat.load)
        elif isinstance(member, PrefillMember):
            member.corrected(beat.load, now_s)
            if beat.events is not None:
                return self._index.apply(beat.instance_id, beat.events)
        return True

    def suspect(self, instance_id: str) -> None:
        """Use an instance no more until it is heard of: a connection to it failed."""
        member = self._find(instance_id)
        if member is not None:
            member.is_suspect = True

    def remove(self, instance_id: str) -> None:
        """Forget an instance; unknown ones are no error."""
        self._index.remove_instance(instance_id)
        self._prefills.pop(instance_id, None)
        self._decodes.pop(instance_id, None)

    def expire(self, now_s: float) -> list[str]:
        """Forget instances that were silent for twice the time to live; return their ids."""
        lost = [m.info.instance_id for m in self._all() if now_s - m.seen_s > 2 * self._ttl_s]
        for instance_id in lost:
            self.remove(instance_id)
        return lost

    def members(self, role: Role, now_s: float) -> list[Member]:
        """Return the instances of a role that are in use."""
        table: Sequence[Member] = list(
            self._prefills.values() if role == "prefill" else self._decodes.values()
        )
        return [m for m in table if not m.is_suspect and now_s - m.seen_s <= self._ttl_s]

    def match(self, names: Sequence[bytes]) -> dict[str, int]:
        """Return for each prefill instance how many leading blocks are in its own pages."""
        return self._index.match(names)

    def block_count(self, instance_id: str) -> int:
        """Return how many blocks a prefill instance holds in its own pages."""
        return self._index.block_count(instance_id)

    def view(self, now_s: float) -> ClusterView:
        """Return what the policy may know now."""
        return ClusterView(
            prefills=tuple(
                _prefill_view(m, now_s)
                for m in self.members("prefill", now_s)
                if isinstance(m, PrefillMember)
            ),
            decodes=tuple(
                _decode_view(m)
                for m in self.members("decode", now_s)
                if isinstance(m, DecodeMember)
            ),
            ttft_slo_s=self._slo.ttft_s,
            tbt_slo_s=self._slo.tbt_s,
            balancing_threshold=self._threshold,
        )

    def assign(self, key: Key, choice: Choice, now_s: float) -> None:
        """Count a choice. Both ends must be told of with `prefill_ended` and `decode_ended`."""
        prefill = self._prefills[choice.prefill.instance.instance_id]
        prefill.work_s[key] = choice.prefill.work_s
        prefill.clear_at_s = max(now_s, prefill.clear_at_s) + choice.prefill.work_s
        decode = self._decodes[choice.decode.instance_id]
        decode.pages[key] = choice.pages
        decode.unreported_pages += choice.pages

    def prefill_ended(self, key: Key, instance_id: str, now_s: float) -> None:
        """Note that a prefill is over, however; a second time is no error."""
        member = self._prefills.get(instance_id)
        if member is not None and member.work_s.pop(key, None) is not None:
            member.clear_at_s = now_s + sum(member.work_s.values())

    def learn(self, instance_id: str, prompt_tokens: int, result: PrefillResult) -> None:
        """Correct the estimates of an instance by what a prefill took."""
        member = self._prefills.get(instance_id)
        if member is None or not 0 <= result.cached_tokens <= prompt_tokens:
            return
        took_s = max(result.compute_s, 0.0) + max(result.send_s, 0.0)
        member.model.observe(prompt_tokens, result.cached_tokens, took_s)
        size_bytes = result.store_tokens * member.info.model.kv_bytes_per_token
        member.loads.observe(size_bytes, max(result.load_s, 0.0))

    def decode_ended(self, key: Key, instance_id: str) -> None:
        """Note that a decode is over, however; a second time is no error."""
        member = self._decodes.get(instance_id)
        if member is None:
            return
        if key in member.pages:
            member.unreported_pages -= member.pages.pop(key)
            left = max(0, member.load.running - 1)
            member.load = msgspec.structs.replace(member.load, running=left)

    def _all(self) -> list[Member]:
        return [*self._prefills.values(), *self._decodes.values()]

    def _find(self, instance_id: str) -> Member | None:
        return self._prefills.get(instance_id) or self._decodes.get(instance_id)


def _prefill_view(member: PrefillMember, now_s: float) -> PrefillView:
    info = member.info
    return PrefillView(
        instance_id=info.instance_id,
        url=info.url,
        peer_id=info.peer_id,
        queue_s=max(0.0, member.clear_at_s - now_s),
        cost=member.model.cost,
        load_token_s=member.loads.byte_s * info.model.kv_bytes_per_token,
        capacity_tokens=info.pages * info.model.page_tokens,
    )


def _decode_view(member: DecodeMember) -> DecodeView:
    info = member.info
    return DecodeView(
        instance_id=info.instance_id,
        url=info.url,
        running=max(len(member.pages), member.load.running),
        max_batch=info.max_batch,
        free_pages=member.free_pages,
        pages=info.pages,
        page_tokens=info.model.page_tokens,
        steps=member.steps,
    )
