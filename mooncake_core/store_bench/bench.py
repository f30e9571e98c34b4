"""One benchmark of a store, from its clients' start to its report."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import TypeVar

import msgspec

from mooncake_core.errors import MooncakeError
from mooncake_core.store_bench.messages import (
    Answer,
    Failed,
    Finish,
    Left,
    Measured,
    Order,
    Prepare,
    Ready,
    Run,
    Start,
)
from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.store_bench.plan import Case, make_cases
from mooncake_core.store_bench.process import Child
from mooncake_core.store_bench.report import RowResult, StoreReport, make_row
from mooncake_core.te_bench.process import read_machine

A = TypeVar("A", bound=Answer)
REMOVE_S = 60.0
"""A client that is told to end may take so long, and four calls that get no answer."""


class Clients:
    """The client processes of a benchmark. `with` ends them; each removes what it has put.

    Raises:
        MooncakeError: one cannot start; the message says why.
    """

    def __init__(self, config: StoreBenchConfig, master: str, prefix: str) -> None:
        with ExitStack() as stack:
            self._children = [
                stack.enter_context(_start(config, master, client, prefix))
                for client in range(config.clients)
            ]
            for child in self._children:
                _heard(child, Ready)
            self._stack = stack.pop_all()

    def ask(self, order: Order, kind: type[A]) -> list[A]:
        """Have all carry out an order at once, and return what each answers.

        Raises:
            MooncakeError: one could not, or is gone; the others have ended this order too.
        """
        line = msgspec.json.encode(order)
        for child in self._children:
            child.tell(line)
        answers = [_answer(child) for child in self._children]
        return [_expected(answer, kind) for answer in answers]

    def close(self) -> None:
        """End all processes and wait for them. Idempotent."""
        for child in self._children:
            child.interrupt()
            child.end()
        self._stack.close()

    @property
    def left(self) -> int | None:
        """Keys that could not be removed, None if that is unknown; once close() has returned."""
        said = [_left(child) for child in self._children]
        return None if None in said else sum(filter(None, said))

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StoreBench:
    """Measures a store row by row. `report()` gives what there is, also after a Ctrl-C.

    Args:
        config: of the benchmark.
        say: told, in a few words, what is under way.

    Raises:
        ConfigError: a part of the config makes no sense.
    """

    def __init__(self, config: StoreBenchConfig, say: Callable[[str], None]) -> None:
        self._config = config
        self._cases = make_cases(config)
        self._say = say
        self._started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._rows: list[RowResult] = []
        self._is_complete = False
        self._left = ""

    @property
    def left(self) -> str:
        """What was put and is still in the store after run(), in words; "": nothing."""
        return self._left

    def run(self, master: str) -> None:
        """Measure every row against the store of a master.

        Raises:
            MooncakeError: the store is not there, or cannot be filled.
        """
        prefix = self._config.prefix or f"bench-{secrets.token_hex(4)}"
        clients = Clients(self._config, master, prefix)
        try:
            with clients:
                for case in self._cases:
                    self._measure(clients, case)
        finally:
            self._left = _left_words(clients.left, master, prefix)
        self._is_complete = True

    def report(self) -> StoreReport:
        """Return what was measured so far."""
        return StoreReport(
            started=self._started,
            config=self._config,
            machine=read_machine(),
            rows=tuple(self._rows),
            is_complete=self._is_complete,
        )

    def _measure(self, clients: Clients, case: Case) -> None:
        config = self._config
        measured: list[list[Measured]] = []
        beside: list[list[Measured]] = []
        self._say(f"{case.name}: preparing")
        clients.ask(Prepare(case=case), Ready)
        if config.warm_up_s:
            beside.append(clients.ask(Run(seconds=config.warm_up_s, calls=None), Measured))
        calls = config.count or None
        limit = Run(seconds=None if calls else config.seconds, calls=calls)
        try:
            for number in range(config.repeats):
                self._say(f"{case.name}: {number + 1} of {config.repeats}")
                measured.append(clients.ask(limit, Measured))
            beside.append(clients.ask(Finish(), Measured))
        finally:
            if measured:
                self._rows.append(make_row(case, measured, beside))


def _start(config: StoreBenchConfig, master: str, client: int, prefix: str) -> Child:
    start = Start(config=config, master=master, client=client, prefix=prefix)
    return Child(
        "mooncake_core.store_bench.worker",
        msgspec.json.encode(start).decode(),
        close_s=REMOVE_S + 4 * config.timeout_s,
    )


def _left(child: Child) -> int | None:
    try:
        return msgspec.json.decode(child.last_words, type=Left).keys
    except msgspec.DecodeError:  # it was killed
        return None


def _left_words(keys: int | None, master: str, prefix: str) -> str:
    if keys == 0:
        return ""
    what = "some keys may be left" if keys is None else f"{keys} keys could not be removed"
    how = f"mooncake store rm --prefix {shlex.quote(prefix + '/')} --master {master}"
    return f"{master}: {what}; once it answers: {how}"


def _answer(child: Child) -> Answer:
    line = child.hear()
    if not line:
        return Failed(problem=f"client process {child.pid} of the benchmark ended")
    answer: Answer = msgspec.json.decode(line, type=Answer)
    return answer


def _heard(child: Child, kind: type[A]) -> A:
    return _expected(_answer(child), kind)


def _expected(answer: Answer, kind: type[A]) -> A:
    if isinstance(answer, Failed):
        raise MooncakeError(answer.problem)
    assert isinstance(answer, kind), (answer, kind)
    return answer
