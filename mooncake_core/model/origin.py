"""What a model is loaded from, where it computes, and whose results are bit-equal to its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mooncake_core.errors import ConfigError

_ISA = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
"""Instruction sets that choose other kernels, and so other roundings."""

_KEY = "model.device"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a backend loads a model from."""

    name: str
    config: dict[str, Any]
    """The object in config.json."""
    folder: Path | None
    """Of the weights; None for random ones."""
    weights_digest: str
    device: torch.device
    dtype: torch.dtype
    page_tokens: int

    def kernel_class(self, backend: str) -> str:
        """Return a name that is equal where `backend` computes the same bits.

        It holds what was seen to change them: the library's version, the processor's instruction
        sets or the GPU's model, and the number of threads.
        """
        if self.device.type == "cuda":
            place = torch.cuda.get_device_name(self.device).replace(" ", "_")
        else:
            isa = "+".join(flag for flag in _ISA if flag in _cpu_flags()) or "plain"
            place = f"{isa}-threads{torch.get_num_threads()}"
        dtype = str(self.dtype).removeprefix("torch.")
        version = str(torch.__version__).partition("+")[0]
        return f"{backend}-{self.device.type}-{dtype}-{place}-torch{version}"


def choose_device(device: str) -> torch.device:
    """Return the device for "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        ConfigError: there is no such device here.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
        raise ConfigError(f"{_KEY}: {device!r} is not one of auto, cpu, cuda, cuda:N")
    if kind == "cuda" and int(index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"{_KEY}: {device!r} is not here: torch sees {count} CUDA devices; use auto or cpu"
        )
    return torch.device(device)


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Return the dtype for "bfloat16", "float32" or "auto": bfloat16 where it is native."""
    if dtype == "auto":
        is_native = (
            torch.cuda.is_bf16_supported()
            if device.type == "cuda"
            else not _cpu_flags().isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))
        )
        return torch.bfloat16 if is_native else torch.float32
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[dtype]


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
