"""One benchmark from its first look at the host to its report."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from mooncake_core.errors import MooncakeError, PeerUnreachable, UsageError
from mooncake_core.model_spec import load_spec
from mooncake_core.te_bench.checks import check_host
from mooncake_core.te_bench.control import AskUsage, Control, Used
from mooncake_core.te_bench.faults import break_lane, break_path, break_peer
from mooncake_core.te_bench.loopback import LoopbackTarget
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import make_cases
from mooncake_core.te_bench.process import read_machine
from mooncake_core.te_bench.recompute import KvPreset, make_preset
from mooncake_core.te_bench.report import Check, FaultResult, Report
from mooncake_core.te_bench.session import Session, is_same_host
from mooncake_core.te_bench.soak import Soak
from mooncake_core.te_bench.sweep import Say, Sweep


class Bench:
    """Measures a target. `report()` gives what there is, also after a Ctrl-C.

    Args:
        control: of the target.
        config: of the benchmark.
        say: told, in a few words, what is under way.
        target: the process, where it may be killed.

    Raises:
        UsageError: a part of the config makes no sense.
    """

    def __init__(
        self,
        control: Control,
        config: BenchConfig,
        say: Say,
        target: LoopbackTarget | None = None,
    ) -> None:
        self.kv = preset_of(config)
        self._config = config if self.kv is None else _with_preset(config, self.kv)
        self._control = control
        self._started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._cases = make_cases(self._config)
        self._checks: tuple[Check, ...] = ()
        self._say = say
        self._target = target
        self._sweep = Sweep(control, self._config, say)
        self._choices = self._sweep.choices
        self._faults: list[FaultResult] = []
        self._soak: Soak | None = None
        self._is_complete = False

    def run(self) -> None:
        """Look at the host, then measure. Raises what Sweep.run and check_host raise."""
        try:
            self._run()
        except PeerUnreachable as error:
            if self._is_there():
                raise
            raise PeerUnreachable(f"the target at {self._control.address} is gone") from error
        self._is_complete = True

    def _is_there(self) -> bool:
        try:
            self._control.ask(AskUsage(), Used)
        except MooncakeError:
            return False
        return True

    def _run(self) -> None:
        welcome = self._control.welcome
        self._checks = check_host(
            welcome, self._cases, self._config, is_same_host=is_same_host(welcome)
        )
        if self._config.fault:
            self._break()
        elif self._config.soak:
            self._run_soak()
        else:
            self._sweep.run(self._cases)

    def report(self) -> Report:
        """Return what was measured so far."""
        welcome = self._control.welcome
        return Report(
            started=self._started,
            config=self._config,
            initiator=read_machine(),
            target=welcome.machine,
            is_same_host=is_same_host(welcome),
            choices=self._choices,
            checks=self._checks,
            rows=tuple(self._sweep.results),
            kv=self.kv,
            faults=tuple(self._faults),
            soak=None if self._soak is None else self._soak.result(),
            is_complete=self._is_complete,
        )

    def _session(self) -> Session:
        transport, *others = dict.fromkeys(case.transport for case in self._cases)
        if others:
            asked = self._config.transport
            raise UsageError(f"--transport: --fault and --soak take one, not {asked}")
        session = Session(self._control, transport, self._config.transfer)
        self._choices[transport] = session.why
        return session

    def _break(self) -> None:
        """Break the same thing `repeats` times; a peer is killed once."""
        largest = max(self._cases, key=lambda case: case.batch_bytes)
        case = msgspec.structs.replace(largest, threads=1)
        with self._session() as session:
            if self._config.fault == "peer":
                assert self._target is not None, "for_faults has refused others"
                self._faults.append(break_peer(session, case, self._target))
                return
            run = break_lane if self._config.fault == "lane" else break_path
            for number in range(self._config.repeats):
                self._say(f"{self._config.fault}: {number + 1} of {self._config.repeats}")
                self._faults.append(run(session, case))

    def _run_soak(self) -> None:
        with self._session() as session:
            self._soak = Soak(session, self._control.address, self._config, self._say)
            self._soak.run()


def preset_of(config: BenchConfig) -> KvPreset | None:
    """Return the KV cache that a config asks for, if it does.

    Raises:
        UsageError, ModelError: the GPU or the model is not known; the message names the nearest.
    """
    if not config.model:
        return None
    return make_preset(load_spec(config.model), config.tokens, config.gpu)


def _with_preset(config: BenchConfig, kv: KvPreset) -> BenchConfig:
    defaults = BenchConfig()
    if (config.block, config.batch) != (defaults.block, defaults.batch):
        raise UsageError("--model: says what block and batch are; give one or the others")
    return msgspec.structs.replace(config, block=str(kv.block_bytes), batch=str(kv.batch))
