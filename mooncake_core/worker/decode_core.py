"""Who holds decode's pages, and who may still write them. Pure.

    reserve ─► RESERVED ─land─► VERIFYING ─verified─► WAITING ─admit─► RUNNING ─sweep─► gone
                  │ client gone, late, superseded, writer barred
                  ▼
              QUARANTINED ── land | release | fenced(writer) ─► gone

A reservation names the one writer that it was granted to. Once the writer has said Landed or
Released, it writes no more and the pages are as good as ours; until then they are used for nothing
else, whatever became of the request. Methods take the time and return what the caller has to do.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from mooncake_core.cache.page_table import PageState, PageTable
from mooncake_core.errors import RequestError
from mooncake_core.messages import DecodeRequest, Failed, Landed, Released

RELEASE_GRACE_S = 2.0
"""How long a writer may take to notice that a request is over before it is fenced for it."""
REMEMBERED_REQUESTS = 65_536

Key = tuple[str, int]


class Phase(Enum):
    """Where a reservation stands."""

    RESERVED = auto()
    VERIFYING = auto()
    WAITING = auto()
    RUNNING = auto()
    QUARANTINED = auto()


@dataclass(eq=False)
class Reservation:
    """One attempt of one request, and its pages."""

    request: DecodeRequest
    writer: int
    pages: list[int]
    deadline_s: float
    phase: Phase = Phase.RESERVED
    fence_at_s: float = 0.0
    """When the writer of a quarantined reservation is to be fenced."""
    abandoned: bool = False
    """Nobody waits for the answer of a running sequence any more."""
    answer: list[int] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """What later messages name it by."""
        return self.request.request_id, self.request.attempt

    @property
    def finish_reason(self) -> Literal["stop", "length"] | None:
        """Why the answer is complete: "stop" or "length"; None while it is not."""
        if self.answer and self.answer[-1] in self.request.stop_token_ids:
            return "stop"
        return "length" if len(self.answer) == self.request.max_tokens else None


class Reservations:
    """All reservations of a decode instance.

    Args:
        table: the pages; used by nobody else.
        page_tokens: tokens a page.
        context_tokens: the longest sequence that the model takes.
        max_batch: sequences that run at once.
    """

    def __init__(
        self, table: PageTable, *, page_tokens: int, context_tokens: int, max_batch: int
    ) -> None:
        self._table = table
        self._page_tokens = page_tokens
        self._context_tokens = context_tokens
        self._max_batch = max_batch
        self._all: dict[Key, Reservation] = {}
        self._waiting: OrderedDict[Key, Reservation] = OrderedDict()
        self._running: dict[Key, Reservation] = {}
        self._barred: set[int] = set()
        """Writers that are being fenced, or are."""
        self._fenced: set[int] = set()
        """Writers that can write no more. Granting them pages is how they get to know it."""
        self._attempts: OrderedDict[str, int] = OrderedDict()
        """The highest attempt seen of each request, most recent last."""

    @property
    def running(self) -> list[Reservation]:
        """The batch."""
        return list(self._running.values())

    @property
    def waiting(self) -> int:
        """How many sequences have landed and wait for a place in the batch."""
        return len(self._waiting)

    def find(self, key: Key) -> Reservation | None:
        """Return the reservation that messages call `key`, if it is still there."""
        return self._all.get(key)

    def reserve(self, request: DecodeRequest, now_s: float) -> Reservation | Failed:
        """Take pages for the whole sequence, or say why not. Abandon earlier attempts first."""
        refusal = self._refuse(request)
        if refusal is not None:
            return refusal
        self._remember(request)
        tokens = request.prompt_tokens + request.max_tokens
        pages = self._table.allocate(-(-tokens // self._page_tokens))
        if pages is None:
            return Failed(
                error=f"no room for {tokens} tokens of KV now; try again or elsewhere",
                retryable=True,
            )
        reservation = Reservation(
            request, int(request.writer_peer_id, 16), pages, now_s + request.deadline_s
        )
        self._all[reservation.key] = reservation
        return reservation

    def earlier_attempts(self, request: DecodeRequest) -> list[Reservation]:
        """Return what `request` supersedes and somebody may still wait for."""
        return [
            other
            for other in self._all.values()
            if other.request.request_id == request.request_id
            and other.request.attempt < request.attempt
            and other.phase is not Phase.QUARANTINED
        ]

    def land(self, landed: Landed) -> Reservation | None:
        """Note that the writer has finished; return what is to be verified now, if anything is."""
        reservation = self._all.get((landed.request_id, landed.attempt))
        if reservation is None or reservation.phase not in {Phase.RESERVED, Phase.QUARANTINED}:
            return None
        if reservation.phase is Phase.QUARANTINED:
            self._drop(reservation)
            return None
        reservation.phase = Phase.VERIFYING
        reservation.answer.append(landed.first_token)
        return reservation

    def verified(self, reservation: Reservation) -> bool:
        """Put a verified sequence in line for the batch; False when it was given up meanwhile."""
        if self._all.get(reservation.key) is not reservation:
            return False
        reservation.phase = Phase.WAITING
        self._waiting[reservation.key] = reservation
        return True

    def release(self, released: Released) -> Reservation | None:
        """Note that the writer gave up; return what somebody still waits for, if anything."""
        reservation = self._all.get((released.request_id, released.attempt))
        if reservation is None or reservation.phase not in {Phase.RESERVED, Phase.QUARANTINED}:
            return None
        waited_for = reservation.phase is Phase.RESERVED
        self._drop(reservation)
        return reservation if waited_for else None

    def abandon(self, reservation: Reservation, now_s: float) -> None:
        """Nobody waits for this any more. What is running leaves at the next `sweep`."""
        if self._all.get(reservation.key) is not reservation:
            return
        if reservation.phase is Phase.RESERVED:
            self._quarantine(reservation, now_s + RELEASE_GRACE_S)
        elif reservation.phase is Phase.RUNNING:
            reservation.abandoned = True
        elif reservation.phase is not Phase.QUARANTINED:
            self._drop(reservation)

    def expire(self, now_s: float) -> list[Reservation]:
        """Quarantine what has not landed in time, and return it; its writers are due at once."""
        late = [
            r for r in self._all.values() if r.phase is Phase.RESERVED and r.deadline_s <= now_s
        ]
        for reservation in late:
            self._quarantine(reservation, now_s)
        return late

    def writers_due(self, now_s: float) -> set[int]:
        """Return the writers that are to be barred now, and were not yet."""
        return {
            r.writer
            for r in self._all.values()
            if r.phase is Phase.QUARANTINED and r.fence_at_s <= now_s
        } - self._barred

    def bar(self, writer: int, now_s: float) -> list[Reservation]:
        """Begin to fence `writer`; return its reservations, which cannot land any more."""
        self._barred.add(writer)
        lost = [r for r in self._all.values() if r.writer == writer and r.phase is Phase.RESERVED]
        for reservation in lost:
            self._quarantine(reservation, now_s)
        return lost

    def fenced(self, writer: int) -> None:
        """Take back what was quarantined because of `writer`, which can write no more."""
        assert writer in self._barred, writer
        self._fenced.add(writer)
        for reservation in list(self._all.values()):
            if reservation.writer == writer and reservation.phase is Phase.QUARANTINED:
                self._drop(reservation)

    def admit(self) -> list[Reservation]:
        """Fill the batch from the line, first come first; return the batch."""
        while self._waiting and len(self._running) < self._max_batch:
            key, reservation = self._waiting.popitem(last=False)
            reservation.phase = Phase.RUNNING
            self._running[key] = reservation
        return self.running

    def sweep(self) -> list[Reservation]:
        """Drop what has finished or was abandoned; REQUIRES: no step is in flight."""
        over = [r for r in self._running.values() if r.abandoned or r.finish_reason]
        for reservation in over:
            self._drop(reservation)
        return over

    def finish(self, reservation: Reservation) -> None:
        """Drop a landed sequence that needs no step."""
        assert reservation.phase in {Phase.VERIFYING, Phase.WAITING}, reservation.phase
        self._drop(reservation)

    def check(self) -> None:
        """Assert every invariant; linear in the pages."""
        self._table.check()
        pages = [page for r in self._all.values() for page in r.pages]
        assert len(pages) == len(set(pages)), "a page belongs to two reservations"
        assert self._table.pages - len(pages) == self._table.count(PageState.FREE)
        quarantined = [r for r in self._all.values() if r.phase is Phase.QUARANTINED]
        assert sum(len(r.pages) for r in quarantined) == self._table.count(PageState.QUARANTINED)
        assert len(self._running) <= self._max_batch
        for line, phase in ((self._waiting, Phase.WAITING), (self._running, Phase.RUNNING)):
            assert line.keys() == {k for k, r in self._all.items() if r.phase is phase}

    def _refuse(self, request: DecodeRequest) -> Failed | None:
        tokens = request.prompt_tokens + request.max_tokens
        limit = min(self._context_tokens, self._table.pages * self._page_tokens)
        if tokens > limit:
            return refusal(
                f"{request.prompt_tokens} prompt tokens and {request.max_tokens} to write are "
                f"{tokens} tokens; this instance holds at most {limit} a request"
            )
        if request.attempt <= self._attempts.get(request.request_id, -1):
            return refusal(
                f"request {request.request_id!r}: attempt {request.attempt} or a later one is here"
            )
        return None

    def _remember(self, request: DecodeRequest) -> None:
        self._attempts[request.request_id] = request.attempt
        self._attempts.move_to_end(request.request_id)
        if len(self._attempts) > REMEMBERED_REQUESTS:
            self._attempts.popitem(last=False)

    def _quarantine(self, reservation: Reservation, fence_at_s: float) -> None:
        if reservation.writer in self._fenced:
            self._drop(reservation)
            return
        self._table.quarantine(reservation.pages)
        reservation.phase = Phase.QUARANTINED
        reservation.fence_at_s = fence_at_s

    def _drop(self, reservation: Reservation) -> None:
        if reservation.phase is Phase.QUARANTINED:
            self._table.readmit(reservation.pages)
        else:
            self._table.free(reservation.pages)
        self._waiting.pop(reservation.key, None)
        self._running.pop(reservation.key, None)
        del self._all[reservation.key]


def refusal(error: str) -> Failed:
    """Return the answer to a request that can never be served as it is."""
    return Failed(error=error, retryable=False, kind=RequestError.__name__)
