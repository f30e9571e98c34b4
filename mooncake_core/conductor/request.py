"""One request from its placement to its end: which call comes next, when it is tried again. Pure.

    placing ─► reserving ─► prefilling ─► streaming ─► ended
       ▲           │             │            │
       └───────────┴─ try again ─┘            └─ a failure here is final: tokens were sent

`attempt` counts the tries; what arrives from an earlier one is dropped. A try that failed is ended
at both instances before the next is placed, with a new reservation, elsewhere if there is an
elsewhere. The number of tries is bounded, and so is the time, by `TimedOut`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mooncake_core.conductor.policy import Choice, Refuse
from mooncake_core.errors import RequestError
from mooncake_core.messages import (
    DecodeEvent,
    Failed,
    Finished,
    PrefillResult,
    Reserved,
    Token,
)

MAX_ATTEMPTS = 3
Finish = Literal["stop", "length"]
Problem = Literal["refused", "failed", "timeout"]


# What happens to a request.


@dataclass(frozen=True)
class Placed:
    """The policy chose."""

    choice: Choice


@dataclass(frozen=True)
class Unplaced:
    """The policy refused."""

    refuse: Refuse


@dataclass(frozen=True)
class Decoded:
    """A line of the decode stream; its end without one that ends it is a retryable Failed."""

    attempt: int
    event: DecodeEvent


@dataclass(frozen=True)
class Prefilled:
    """The answer of prefill."""

    attempt: int
    answer: PrefillResult | Failed


@dataclass(frozen=True)
class InstanceLost:
    """An instance is gone."""

    instance_id: str


@dataclass(frozen=True)
class TimedOut:
    """The request took as long as any may."""


Event = Placed | Unplaced | Decoded | Prefilled | InstanceLost | TimedOut


# What is to be done.


@dataclass(frozen=True)
class Place:
    """Ask the policy; answer with Placed or Unplaced."""

    attempt: int
    failed: frozenset[str]
    """Instances that failed this request before."""


@dataclass(frozen=True)
class OpenDecode:
    """Open the decode stream."""

    attempt: int
    choice: Choice


@dataclass(frozen=True)
class SendPrefill:
    """Call prefill."""

    attempt: int
    choice: Choice
    target: Reserved


@dataclass(frozen=True)
class EndAttempt:
    """Close what is still open of an attempt, which cancels it there."""

    attempt: int


@dataclass(frozen=True)
class Begin:
    """The first token is there; what it cost."""

    choice: Choice
    result: PrefillResult


@dataclass(frozen=True)
class Emit:
    """One token of the answer."""

    token_id: int


@dataclass(frozen=True)
class Done:
    """The answer is complete."""

    reason: Finish


@dataclass(frozen=True)
class GiveUp:
    """The request ends with an error."""

    kind: Problem
    message: str
    refuse: Refuse | None = None


Action = Place | OpenDecode | SendPrefill | EndAttempt | Begin | Emit | Done | GiveUp
Phase = Literal["placing", "reserving", "prefilling", "streaming", "ended"]


class RequestMachine:
    """The state of one request.

    Args:
        max_tokens: of the answer.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._attempt = 0
        self._failed: frozenset[str] = frozenset()
        self._choice: Choice | None = None
        self._early: list[Token | Finished] = []
        self._sent = 0
        self.phase: Phase = "placing"

    def start(self) -> list[Action]:
        """Return the first thing to do."""
        return [Place(0, frozenset())]

    def step(self, event: Event) -> list[Action]:  # noqa: PLR0911  one return a case
        """Take in one event and return what is to be done, in order."""
        if self.phase == "ended":
            return []
        # Every case returns, so mypy proves that none is missing.
        match event:
            case Placed():
                return self._placed(event.choice)
            case Unplaced():
                return self._give_up("refused", event.refuse.message, event.refuse)
            case Decoded():
                return self._decoded(event.event) if event.attempt == self._attempt else []
            case Prefilled():
                return self._prefilled(event.answer) if event.attempt == self._attempt else []
            case InstanceLost():
                return self._lost(event.instance_id)
            case TimedOut():
                return self._give_up("timeout", "the request took longer than any may take")

    def _placed(self, choice: Choice) -> list[Action]:
        assert self.phase == "placing", self.phase
        self._choice = choice
        self.phase = "reserving"
        return [OpenDecode(self._attempt, choice)]

    def _decoded(self, event: DecodeEvent) -> list[Action]:
        assert self._choice is not None, self.phase
        match event:
            case Reserved():
                if self.phase != "reserving" or event.attempt != self._attempt:
                    return self._broken("a reservation out of turn")
                self.phase = "prefilling"
                return [SendPrefill(self._attempt, self._choice, event)]
            case Failed():
                return self._failed_at(self._decode_id, "decode", event)
            case Token() | Finished():
                if self.phase == "streaming":
                    return self._streamed(event)
                # Decode had the first token from prefill before we did.
                self._early.append(event)
                return []

    def _prefilled(self, answer: PrefillResult | Failed) -> list[Action]:
        if self.phase != "prefilling":
            return []
        assert self._choice is not None
        if isinstance(answer, Failed):
            return self._failed_at(self._prefill_id, "prefill", answer)
        self.phase = "streaming"
        actions: list[Action] = [Begin(self._choice, answer)]
        actions += self._emit(answer.first_token)
        for event in self._early:
            if self._is_open():
                actions += self._streamed(event)
        return actions

    def _is_open(self) -> bool:
        return self.phase == "streaming"

    def _streamed(self, event: Token | Finished) -> list[Action]:
        match event:
            case Token():
                if event.index != self._sent or self._sent >= self._max_tokens:
                    return self._broken(f"token {event.index} came, {self._sent} was due")
                return self._emit(event.token_id)
            case Finished():
                if event.completion_tokens != self._sent:
                    return self._broken(f"{event.completion_tokens} tokens, {self._sent} came")
                self.phase = "ended"
                return [EndAttempt(self._attempt), Done(event.reason)]

    def _emit(self, token_id: int) -> list[Action]:
        self._sent += 1
        return [Emit(token_id)]

    def _lost(self, instance_id: str) -> list[Action]:
        if self._choice is None:
            return []
        gone = Failed(error="it is gone", retryable=True)
        if instance_id == self._decode_id:
            return self._failed_at(instance_id, "decode", gone)
        if instance_id == self._prefill_id and self.phase != "streaming":
            return self._failed_at(instance_id, "prefill", gone)
        return []

    def _failed_at(self, instance_id: str, role: str, failed: Failed) -> list[Action]:
        """Try again while nothing was sent and another try may end better; else give up."""
        message = f"{role} instance {instance_id}: {failed.error}"
        is_last = self.phase == "streaming" or self._attempt + 1 >= MAX_ATTEMPTS
        if is_last or not _is_worth_a_try(failed):
            return self._give_up("failed", message)
        ended = EndAttempt(self._attempt)
        # Once both work on it, who tells of a failure first is not who caused it.
        blamed = {instance_id} if self.phase == "reserving" else {self._prefill_id, self._decode_id}
        self._failed |= blamed
        self._attempt += 1
        self._choice = None
        self._early.clear()
        self.phase = "placing"
        return [ended, Place(self._attempt, self._failed)]

    def _broken(self, what: str) -> list[Action]:
        """End on a decode instance that breaks the protocol: nothing it says can be trusted."""
        return self._give_up("failed", f"decode instance {self._decode_id} broke off: {what}")

    def _give_up(
        self,
        kind: Literal["refused", "failed", "timeout"],
        message: str,
        refuse: Refuse | None = None,
    ) -> list[Action]:
        self.phase = "ended"
        return [EndAttempt(self._attempt), GiveUp(kind, message, refuse)]

    @property
    def _prefill_id(self) -> str:
        assert self._choice is not None
        return self._choice.prefill.instance.instance_id

    @property
    def _decode_id(self) -> str:
        assert self._choice is not None
        return self._choice.decode.instance_id


def _is_worth_a_try(failed: Failed) -> bool:
    """Whether another instance may do better: not if the request itself is wrong."""
    return failed.retryable or failed.kind not in {"", RequestError.__name__}
