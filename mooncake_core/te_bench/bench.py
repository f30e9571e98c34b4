"""One benchmark from its first look at the host to its report."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from mooncake_core.errors import ConfigError
from mooncake_core.model_spec import load_spec
from mooncake_core.te_bench.checks import check_host
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import make_cases
from mooncake_core.te_bench.process import read_machine
from mooncake_core.te_bench.recompute import KvPreset, make_preset
from mooncake_core.te_bench.report import Check, Report
from mooncake_core.te_bench.session import is_same_host
from mooncake_core.te_bench.sweep import Say, Sweep


class Bench:
    """Measures a target. `report()` gives what there is, also after a Ctrl-C.

    Args:
        control: of the target.
        config: of the benchmark.
        say: told, in a few words, what is under way.

    Raises:
        ConfigError: a part of the config makes no sense.
    """

    def __init__(self, control: Control, config: BenchConfig, say: Say) -> None:
        self.kv = preset_of(config)
        self._config = config if self.kv is None else _with_preset(config, self.kv)
        self._control = control
        self._started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._cases = make_cases(self._config)
        self._checks: tuple[Check, ...] = ()
        self._sweep = Sweep(control, self._config, say)
        self._is_complete = False

    def run(self) -> None:
        """Look at the host, then measure. Raises what Sweep.run and check_host raise."""
        memory_bytes = self._config.memory_bytes
        is_here = is_same_host(self._control.welcome)
        self._checks = check_host(
            self._control.welcome, self._cases, memory_bytes, is_same_host=is_here
        )
        self._sweep.run(self._cases)
        self._is_complete = True

    def report(self) -> Report:
        """Return what was measured so far."""
        welcome = self._control.welcome
        return Report(
            started=self._started,
            config=self._config,
            initiator=read_machine(),
            target=welcome.machine,
            is_same_host=is_same_host(welcome),
            choices=self._sweep.choices,
            checks=self._checks,
            rows=tuple(self._sweep.results),
            kv=self.kv,
            is_complete=self._is_complete,
        )


def preset_of(config: BenchConfig) -> KvPreset | None:
    """Return the KV cache that a config asks for, if it does.

    Raises:
        ConfigError, ModelError: the GPU or the model is not known; the message names the nearest.
    """
    if not config.model:
        return None
    return make_preset(load_spec(config.model), config.tokens, config.gpu)


def _with_preset(config: BenchConfig, kv: KvPreset) -> BenchConfig:
    defaults = BenchConfig()
    if (config.block, config.batch) != (defaults.block, defaults.batch):
        raise ConfigError("--model:model: says what block and batch are; give one or the others")
    return msgspec.structs.replace(config, block=str(kv.block_bytes), batch=str(kv.batch))
