"""Reservations under every order of events: no page is used while somebody may still write it."""

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooncake_core.cache.page_table import PageState, PageTable
from mooncake_core.messages import DecodeRequest, Failed, Landed, Released, Sampling
from mooncake_core.worker.decode_core import RELEASE_GRACE_S, Phase, Reservation, Reservations

PAGES = 16
PAGE_TOKENS = 4
STOP = 7


def request(
    name: str = "a", attempt: int = 0, *, prompt: int = 6, answer: int = 4, writer: int = 1
) -> DecodeRequest:
    return DecodeRequest(
        request_id=name,
        attempt=attempt,
        prompt_tokens=prompt,
        max_tokens=answer,
        sampling=Sampling(),
        stop_token_ids=[STOP],
        writer_peer_id=f"{writer:x}",
        deadline_s=10.0,
    )


def landed(key: tuple[str, int]) -> Landed:
    return Landed(request_id=key[0], attempt=key[1], first_token=3, checksums=[])


def new_core(max_batch: int = 2) -> tuple[PageTable, Reservations]:
    table = PageTable(PAGES)
    return table, Reservations(
        table, page_tokens=PAGE_TOKENS, context_tokens=40, max_batch=max_batch
    )


def reserved(core: Reservations, now_s: float = 0.0, **fields: int) -> Reservation:
    reservation = core.reserve(request(**fields), now_s)  # type: ignore[arg-type]
    assert isinstance(reservation, Reservation)
    return reservation


def run(core: Reservations, reservation: Reservation) -> None:
    assert core.land(landed(reservation.key)) is reservation
    assert core.verified(reservation)
    assert reservation in core.admit()


def test_pages_cover_prompt_and_answer() -> None:
    table, core = new_core()
    reservation = reserved(core, prompt=6, answer=4)
    assert len(reservation.pages) == 3
    assert table.count(PageState.OWNED) == 3


def test_what_can_never_fit_is_refused_for_good() -> None:
    _, core = new_core()
    refusal = core.reserve(request(prompt=40, answer=1), 0.0)
    assert isinstance(refusal, Failed) and not refusal.retryable
    assert "41 tokens" in refusal.error and "40" in refusal.error


def test_what_does_not_fit_now_is_refused_for_now() -> None:
    _, core = new_core()
    reserved(core, prompt=36, answer=4)
    refusal = core.reserve(request("b", prompt=36, answer=4), 0.0)
    assert isinstance(refusal, Failed) and refusal.retryable


def test_the_same_attempt_twice_is_refused() -> None:
    _, core = new_core()
    first = reserved(core)
    refusal = core.reserve(request(), 0.0)
    assert isinstance(refusal, Failed) and not refusal.retryable
    assert core.find(first.key) is first


def test_an_attempt_is_refused_after_a_later_one_has_ended() -> None:
    _, core = new_core()
    later = reserved(core, attempt=1)
    core.land(landed(later.key))
    core.finish(later)
    assert isinstance(core.reserve(request(attempt=0), 0.0), Failed)
    assert isinstance(core.reserve(request(attempt=1), 0.0), Failed)


def test_a_later_attempt_supersedes_an_earlier_one_whose_pages_stay_apart() -> None:
    table, core = new_core()
    first = reserved(core)
    retry = request(attempt=1, writer=2)
    assert core.earlier_attempts(retry) == [first]
    core.abandon(first, 0.0)
    second = core.reserve(retry, 0.0)
    assert isinstance(second, Reservation)
    assert first.phase is Phase.QUARANTINED
    assert core.land(landed(first.key)) is None, "the late writer of the first attempt is ignored"
    assert core.find(second.key) is second
    assert table.count(PageState.QUARANTINED) == 0


def test_a_late_reservation_is_quarantined_until_its_writer_is_fenced() -> None:
    table, core = new_core()
    reservation = reserved(core, writer=5)
    assert core.expire(9.9) == []
    assert core.expire(10.0) == [reservation]
    assert core.writers_due(10.0) == {5}
    core.bar(5, 10.0)
    assert core.writers_due(11.0) == set()
    assert table.count(PageState.QUARANTINED) == 3
    core.fenced(5)
    assert table.count(PageState.FREE) == PAGES


def test_a_writer_has_a_moment_to_release_what_its_client_gave_up() -> None:
    table, core = new_core()
    reservation = reserved(core, writer=5)
    core.abandon(reservation, 1.0)
    assert core.writers_due(1.0) == set()
    assert core.writers_due(1.0 + RELEASE_GRACE_S) == {5}
    name, attempt = reservation.key
    assert core.release(Released(request_id=name, attempt=attempt)) is None
    assert core.writers_due(9.0) == set()
    assert table.count(PageState.FREE) == PAGES


def test_a_released_reservation_is_returned_to_be_failed() -> None:
    table, core = new_core()
    reservation = reserved(core)
    released = Released(request_id="a", attempt=0)
    assert core.release(released) is reservation
    assert core.release(released) is None
    assert table.count(PageState.FREE) == PAGES


def test_a_barred_writer_loses_the_pages_it_has() -> None:
    _, core = new_core()
    reservation = reserved(core, writer=5)
    assert core.bar(5, 0.0) == [reservation]
    assert reservation.phase is Phase.QUARANTINED


def test_pages_of_a_fenced_writer_need_no_quarantine() -> None:
    table, core = new_core()
    core.bar(5, 0.0)
    core.fenced(5)
    core.abandon(reserved(core, writer=5), 0.0)
    assert table.count(PageState.FREE) == PAGES


def test_a_second_landed_is_ignored() -> None:
    _, core = new_core()
    reservation = reserved(core)
    run(core, reservation)
    assert core.land(landed(reservation.key)) is None
    assert reservation.answer == [3]


def test_a_running_sequence_keeps_its_pages_until_no_step_is_in_flight() -> None:
    table, core = new_core()
    reservation = reserved(core)
    run(core, reservation)
    core.abandon(reservation, 0.0)
    assert table.count(PageState.OWNED) == 3
    assert core.sweep() == [reservation]
    assert table.count(PageState.FREE) == PAGES


def test_the_batch_is_filled_in_the_order_of_landing() -> None:
    _, core = new_core(max_batch=1)
    first, second = reserved(core, name="a"), reserved(core, name="b")  # type: ignore[arg-type]
    for reservation in (second, first):
        core.land(landed(reservation.key))
        core.verified(reservation)
    assert core.admit() == [second]
    assert core.waiting == 1
    second.answer.append(STOP)
    core.sweep()
    assert core.admit() == [first]


def test_an_answer_ends_with_a_stop_token_or_at_its_length() -> None:
    _, core = new_core()
    reservation = reserved(core, answer=3)
    assert reservation.finish_reason is None
    reservation.answer.extend([1, STOP])
    assert reservation.finish_reason == "stop"
    reservation.answer[:] = [1, 2, 3]
    assert reservation.finish_reason == "length"


@dataclass
class Grant:
    """What a writer believes that it may do."""

    reservation: Reservation
    open: bool = True
    """It may still write."""
    ended: bool = False
    """It has said that it will not."""


class WritersAndPages(RuleBasedStateMachine):
    """Writers write whatever they were granted, until they say that they do not, or are fenced."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.core = new_core()
        self.now_s = 0.0
        self.grants: list[Grant] = []
        self.fenced: set[int] = set()
        self.barring: set[int] = set()
        self.names = 0

    @rule(prompt=st.integers(1, 20), answer=st.integers(1, 8), writer=st.integers(1, 3))
    def reserve(self, prompt: int, answer: int, writer: int) -> None:
        self.names += 1
        fields = request(str(self.names), prompt=prompt, answer=answer, writer=writer)
        free = self.table.count(PageState.FREE)
        reservation = self.core.reserve(fields, self.now_s)
        fits = -(-(prompt + answer) // PAGE_TOKENS) <= free
        assert isinstance(reservation, Reservation) == fits
        if isinstance(reservation, Failed):
            return
        for grant in self.grants:
            if grant.open:
                assert not set(grant.reservation.pages) & set(reservation.pages)
        self.grants.append(Grant(reservation, open=writer not in self.fenced))

    @rule(data=st.data())
    def end_a_grant(self, data: st.DataObject) -> None:
        grant = self.pick(data)
        if grant is None or not grant.open:
            return
        grant.open, grant.ended = False, True
        if data.draw(st.booleans()):
            if self.core.land(landed(grant.reservation.key)) is not None:
                self.core.verified(grant.reservation)
        else:
            name, attempt = grant.reservation.key
            self.core.release(Released(request_id=name, attempt=attempt))

    @rule(data=st.data())
    def repeat_or_invent_a_message(self, data: st.DataObject) -> None:
        grant = self.pick(data)
        if grant is None or not grant.ended:
            return
        name, attempt = grant.reservation.key
        assert self.core.land(landed((name, attempt))) is None
        assert self.core.release(Released(request_id=name, attempt=attempt + 1)) is None

    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        grant = self.pick(data)
        if grant is not None:
            self.core.abandon(grant.reservation, self.now_s)

    @rule(seconds=st.floats(0.1, 6))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.core.expire(self.now_s)
        for writer in self.core.writers_due(self.now_s):
            self.barring.add(writer)
            self.core.bar(writer, self.now_s)

    @rule()
    def fence(self) -> None:
        for writer in self.barring - self.fenced:
            self.fenced.add(writer)
            for grant in self.grants:
                grant.open = grant.open and grant.reservation.writer != writer
            self.core.fenced(writer)

    @rule(token=st.integers(0, STOP))
    def step(self, token: int) -> None:
        self.core.sweep()
        for reservation in self.core.admit():
            reservation.answer.append(token)
        self.core.sweep()

    @invariant()
    def books_balance(self) -> None:
        self.core.check()

    def teardown(self) -> None:
        self.wait(100.0)
        self.fence()
        for grant in self.grants:
            self.core.abandon(grant.reservation, self.now_s)
        self.core.sweep()
        assert self.table.count(PageState.FREE) == PAGES

    def pick(self, data: st.DataObject) -> Grant | None:
        if not self.grants:
            return None
        return self.grants[data.draw(st.integers(0, len(self.grants) - 1))]


TestWritersAndPages = WritersAndPages.TestCase
TestWritersAndPages.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
