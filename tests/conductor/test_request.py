"""The request machine, event by event: what is done next, and that it always ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.conductor.policy import Ask, Choice, Refuse, choose
from mooncake_core.conductor.request import (
    MAX_ATTEMPTS,
    Action,
    Begin,
    Decoded,
    Done,
    Emit,
    EndAttempt,
    Event,
    GiveUp,
    InstanceLost,
    OpenDecode,
    Place,
    Placed,
    Prefilled,
    RequestMachine,
    SendPrefill,
    TimedOut,
    Unplaced,
)
from mooncake_core.messages import Failed, Finished, PrefillResult, Reserved, Token
from tests.conductor.views import prefill, view

GONE = Failed(error="gone", retryable=True)


def choice(prefill_id: str = "p0") -> Choice:
    made = choose(view(prefill(prefill_id)), Ask(prompt_tokens=10, max_tokens=3), 0.0)
    assert isinstance(made, Choice)
    return made


def reserved(attempt: int = 0) -> Reserved:
    return Reserved(
        request_id="r",
        attempt=attempt,
        url="http://d0",
        endpoint="e",
        segment_id=1,
        pool_pages=10,
        page_bytes=64,
        pages=[0],
    )


def result(attempt: int = 0, first_token: int = 7) -> PrefillResult:
    return PrefillResult(
        request_id="r",
        attempt=attempt,
        first_token=first_token,
        cached_tokens=0,
        local_tokens=0,
        store_tokens=0,
        queue_s=0,
        load_s=0,
        compute_s=1,
        send_s=0,
    )


def run(*events: Event, max_tokens: int = 3) -> tuple[RequestMachine, list[Action]]:
    """Return the machine and the actions after the last of `events`."""
    machine = RequestMachine(max_tokens)
    actions = machine.start()
    for event in events:
        actions = machine.step(event)
    return machine, actions


PLACED = Placed(choice())
RESERVED = Decoded(0, reserved())
PREFILLED = Prefilled(0, result())
STREAMING = (PLACED, RESERVED, PREFILLED)


def token(index: int, attempt: int = 0) -> Decoded:
    return Decoded(attempt, Token(token_id=10 + index, index=index))


def finished(tokens: int, attempt: int = 0) -> Decoded:
    return Decoded(attempt, Finished(reason="stop", completion_tokens=tokens))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), [Place(0, frozenset())]),
        ((PLACED,), [OpenDecode(0, PLACED.choice)]),
        ((PLACED, RESERVED), [SendPrefill(0, PLACED.choice, reserved())]),
        (STREAMING, [Begin(PLACED.choice, result()), Emit(7)]),
        ((*STREAMING, token(1)), [Emit(11)]),
        ((*STREAMING, token(1), finished(2)), [EndAttempt(0), Done("stop")]),
    ],
)
def test_a_request_goes_through_decode_and_prefill_to_its_tokens(
    events: tuple[Event, ...], expected: list[Action]
) -> None:
    assert run(*events)[1] == expected


def test_tokens_that_arrive_before_prefill_answers_wait_for_the_first() -> None:
    _, actions = run(PLACED, RESERVED, token(1), finished(2), PREFILLED)
    assert actions[1:] == [Emit(7), Emit(11), EndAttempt(0), Done("stop")]


@pytest.mark.parametrize(
    "failure",
    [
        (PLACED, Decoded(0, GONE)),
        (PLACED, RESERVED, Decoded(0, GONE)),
        (PLACED, RESERVED, Prefilled(0, GONE)),
        (PLACED, RESERVED, token(1), Prefilled(0, GONE)),
        (PLACED, InstanceLost("p0")),
        (PLACED, RESERVED, InstanceLost("p0")),
        (PLACED, RESERVED, InstanceLost("d0")),
    ],
)
def test_a_failure_before_the_first_token_is_tried_again_elsewhere(
    failure: tuple[Event, ...],
) -> None:
    machine, actions = run(*failure)
    assert actions[0] == EndAttempt(0)
    assert isinstance(actions[1], Place)
    assert actions[1].attempt == 1 and actions[1].failed
    machine.step(Placed(choice("p1")))
    machine.step(Decoded(1, reserved(1)))
    assert machine.step(Prefilled(1, result(1)))[1] == Emit(7)
    assert machine.step(token(1, attempt=1)) == [Emit(11)]


@pytest.mark.parametrize("failure", [Decoded(0, GONE), InstanceLost("d0")])
def test_a_failure_after_the_first_token_is_final(failure: Event) -> None:
    machine, actions = run(*STREAMING, failure)
    assert actions[0] == EndAttempt(0)
    assert isinstance(actions[1], GiveUp) and "d0" in actions[1].message
    assert machine.phase == "ended"


def test_the_loss_of_prefill_after_the_first_token_changes_nothing() -> None:
    assert run(*STREAMING, InstanceLost("p0"))[1] == []


def test_a_failure_that_would_repeat_is_not_tried_again() -> None:
    failed = Failed(error="no such token", retryable=False)
    _, actions = run(PLACED, RESERVED, Prefilled(0, failed))
    assert isinstance(actions[1], GiveUp) and "no such token" in actions[1].message


def test_an_instance_that_was_fenced_is_no_fault_of_the_request() -> None:
    fenced = Failed(error="fenced", retryable=False, kind="Fenced")
    _, actions = run(PLACED, RESERVED, Prefilled(0, fenced))
    assert isinstance(actions[1], Place)


def test_a_failure_while_both_work_blames_both() -> None:
    _, actions = run(PLACED, RESERVED, Decoded(0, GONE))
    assert actions[1] == Place(1, frozenset({"p0", "d0"}))
    _, actions = run(PLACED, Decoded(0, GONE))
    assert actions[1] == Place(1, frozenset({"d0"}))


def test_tries_are_bounded() -> None:
    machine = RequestMachine(3)
    for attempt in range(MAX_ATTEMPTS):
        machine.step(Placed(choice(f"p{attempt}")))
        actions = machine.step(Decoded(attempt, GONE))
    assert isinstance(actions[-1], GiveUp)


def test_what_arrives_from_an_earlier_try_is_dropped() -> None:
    machine, _ = run(PLACED, RESERVED, Prefilled(0, GONE), Placed(choice("p1")))
    for stale in (RESERVED, PREFILLED, token(1), finished(1), Decoded(0, GONE)):
        assert machine.step(stale) == []


@pytest.mark.parametrize("events", [(), (PLACED,), (PLACED, RESERVED), STREAMING])
def test_the_deadline_ends_every_state(events: tuple[Event, ...]) -> None:
    machine, actions = run(*events, TimedOut())
    assert isinstance(actions[-1], GiveUp) and actions[-1].kind == "timeout"
    assert machine.phase == "ended"


def test_a_refusal_is_passed_on() -> None:
    refuse = Refuse(reason="ttft_slo", message="too slow", retry_after_s=2.0)
    _, actions = run(Unplaced(refuse))
    assert actions[-1] == GiveUp("refused", "too slow", refuse)


@pytest.mark.parametrize("event", [token(2), finished(5), RESERVED])
def test_a_decode_that_loses_tokens_is_not_believed(event: Decoded) -> None:
    _, actions = run(*STREAMING, event)
    assert isinstance(actions[-1], GiveUp) and "broke off" in actions[-1].message


EVENTS: dict[str, Any] = {
    "placed": Placed(choice()),
    "unplaced": Unplaced(Refuse(reason="no_decode", message="", retry_after_s=1)),
    "lost_p": InstanceLost("p0"),
    "lost_d": InstanceLost("d0"),
    "late": TimedOut(),
}


@given(st.lists(st.tuples(st.sampled_from(["d", "p", "x"]), st.integers(0, 5)), max_size=40))
def test_any_order_of_events_ends_at_most_once_and_emits_in_order(
    steps: list[tuple[str, int]],
) -> None:
    machine = RequestMachine(4)
    actions = machine.start()
    seen: list[Action] = []
    for kind, number in steps:
        for action in actions:
            if isinstance(action, Place):
                actions = machine.step(EVENTS["placed"])
        attempt = number % 3
        event: Event
        if kind == "d":
            lines = [reserved(attempt), Token(token_id=number + 10, index=max(1, number)), GONE]
            event = Decoded(attempt, lines[number // 2])
        elif kind == "p":
            event = Prefilled(attempt, result(attempt) if number < 4 else GONE)
        else:
            event = EVENTS["lost_p" if number < 2 else "lost_d" if number < 4 else "late"]
        actions = machine.step(event)
        seen += actions
    assert sum(isinstance(action, Done | GiveUp) for action in seen) <= 1
    assert sum(isinstance(action, Begin) for action in seen) <= 1
    tokens = [action.token_id for action in seen if isinstance(action, Emit)]
    assert tokens in ([], [7], [7, 11], [7, 11, 12], [7, 11, 12, 13])
