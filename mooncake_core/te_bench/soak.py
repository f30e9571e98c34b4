"""Soak: mixed sizes for a long time, with connections cut at random; does anything grow?

Two threads, each with a connection to the target of its own, make row after row of random sizes and
verify each call. A third one ends the connections of a random path now and then.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable

from mooncake_core.errors import MooncakeError
from mooncake_core.te_bench.control import AskUsage, Control, Used
from mooncake_core.te_bench.cuts import cut
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import DIRECTIONS, Case, Layout
from mooncake_core.te_bench.process import count_time_wait, read_usage
from mooncake_core.te_bench.report import Moment, SoakResult
from mooncake_core.te_bench.row import Row
from mooncake_core.te_bench.session import Session
from mooncake_core.te_bench.steady import verified_call

THREADS = 2
MOMENTS = 120
"""How often usage is looked at, spread over the time."""
TIME_WAIT_S = 60.0
_CUT_EVERY_S = (0.1, 1.0)
_BLOCKS = (1, 4096, 4097, 65_536, 1 << 20)
_ROW_BYTES = 4 << 20
_CALLS_OF_A_ROW = 8


class Soak:
    """Runs for `config.soak` seconds over a session; result() also after a Ctrl-C."""

    def __init__(
        self, session: Session, address: str, config: BenchConfig, say: Callable[[str], None]
    ) -> None:
        self._session = session
        self._address = address
        self._seconds = config.soak
        self._seed = config.seed
        self._say = say
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._calls = self._bytes = 0
        self._cuts_s: list[float] = []
        self._errors: list[str] = []
        self._moments: list[Moment] = []
        self._started_s = time.monotonic()

    def run(self) -> None:
        """Block until the time is over."""
        work = [
            *(threading.Thread(target=self._work, args=(number,)) for number in range(THREADS)),
            threading.Thread(target=self._cut),
        ]
        self._started_s = time.monotonic()
        for thread in work:
            thread.start()
        try:
            self._watch()
        finally:
            self._over.set()
            for thread in work:
                thread.join()

    def result(self) -> SoakResult:
        """Return what was seen so far."""
        moments = tuple(self._moments)
        return SoakResult(
            seconds=time.monotonic() - self._started_s,
            calls=self._calls,
            bytes=self._bytes,
            cuts=len(self._cuts_s),
            errors=tuple(self._errors),
            moments=moments,
            grown=what_grew(moments),
        )

    def _work(self, number: int) -> None:
        rng = random.Random(self._seed * 1000 + number)
        try:
            with Control(self._address) as control:
                while not self._over.is_set():
                    self._row(control, rng)
        except MooncakeError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise

    def _row(self, control: Control, rng: random.Random) -> None:
        """Make some calls of one random kind."""
        block = rng.choice(_BLOCKS)
        batch = rng.randint(1, min(512, _ROW_BYTES // block))
        direction = rng.choice(DIRECTIONS)
        case = Case(
            transport="auto", direction=direction, block_bytes=block, batch=batch, threads=1
        )
        layout = Layout(block_bytes=block, batch=batch, slots=1)
        with Row(self._session.engine, control, case, layout) as row:
            for _ in range(_CALLS_OF_A_ROW):
                for strand in row.strands:
                    if self._over.is_set():
                        return
                    verified_call(strand, control)
                    with self._lock:
                        self._calls += 1
                        self._bytes += case.batch_bytes

    def _cut(self) -> None:
        rng = random.Random(self._seed)
        while not self._over.wait(rng.uniform(*_CUT_EVERY_S)):
            paths = [path for path in self._session.engine.statistics() if path.transport == "tcp"]
            if paths and cut(rng.choice(paths)):
                self._cuts_s.append(time.monotonic())

    def _watch(self) -> None:
        every_s = max(0.1, self._seconds / MOMENTS)
        with Control(self._address) as control:
            while (left_s := self._started_s + self._seconds - time.monotonic()) > 0:
                if self._over.wait(min(every_s, left_s)):
                    return
                self._moments.append(self._look(control))
                self._say(f"soak: {left_s:.0f} s left, {self._calls:,} calls verified")

    def _look(self, control: Control) -> Moment:
        now_s = time.monotonic()
        ports = {
            int(path.remote.rpartition(":")[2])
            for path in self._session.engine.statistics()
            if path.transport == "tcp"
        }
        return Moment(
            at_s=now_s - self._started_s,
            initiator=read_usage(),
            target=control.ask(AskUsage(), Used).usage,
            time_wait=count_time_wait(sorted(ports)),
            recent_cuts=sum(at_s > now_s - TIME_WAIT_S for at_s in self._cuts_s),
        )

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._errors.append(f"{type(error).__name__}: {error}")
        self._over.set()


def what_grew(moments: tuple[Moment, ...]) -> tuple[str, ...]:
    """Return what was more in the last third than in the second; empty: all is flat.

    The first third is for warming up. Memory may grow by a tenth or 16 MiB, descriptors by 4. Each
    cut may leave two sockets in TIME_WAIT, which last a minute.
    """
    third = len(moments) // 3
    if third == 0:
        return ()
    earlier, later = moments[third : 2 * third], moments[2 * third :]
    grown = []
    for side in ("initiator", "target"):
        for name, least, share in (
            ("rss_bytes", 16 << 20, 0.1),
            ("fds", 4, 0.0),
            ("sockets", 4, 0.0),
        ):
            before, after = (_median(part, side, name) for part in (earlier, later))
            if after > before + max(least, share * before):
                grown.append(f"{side}.{name}: {before:,.0f} | {after:,.0f}")
    for moment in moments:
        if moment.time_wait > 2 * moment.recent_cuts + 50:
            grown.append(f"time_wait: {moment.time_wait} after {moment.recent_cuts} cuts")
            break
    return tuple(grown)


def _median(moments: tuple[Moment, ...], side: str, name: str) -> float:
    return float(statistics.median(getattr(getattr(moment, side), name) for moment in moments))
