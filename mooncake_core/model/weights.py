"""Tensors of a checkpoint by name: mapped from safetensors files, or random."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mooncake_core.errors import ModelError

Shapes = Mapping[str, tuple[int, ...]]

_IGNORED = ("rotary_emb.inv_freq",)
"""Computed from config.json; old checkpoints hold them too."""


def load_weights(
    folder: Path, shapes: Shapes, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Return exactly the tensors of `shapes`, as `dtype` on `device`.

    On a CPU, tensors of that dtype already are views of the mapped files, shared by processes.

    Raises:
        ModelError: a tensor is missing, unexpected, or has another shape; a file is damaged.
    """
    weights: dict[str, Tensor] = {}
    for file in _files(folder):
        for name, tensor in _tensors(file, shapes):
            weights[name] = tensor.to(device=device, dtype=dtype)
    missing = [name for name in shapes if name not in weights]
    if missing:
        raise ModelError(f"{folder}: tensor {missing[0]!r} is missing ({len(missing)} in all)")
    return weights


def random_weights(
    shapes: Shapes, std: float, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Return normally distributed weights, the same in every process; norms are 1, biases 0."""
    generator = torch.Generator(device).manual_seed(0)
    weights = {}
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            weights[name] = torch.ones(shape, dtype=dtype, device=device)
        elif name.endswith(".bias"):
            weights[name] = torch.zeros(shape, dtype=dtype, device=device)
        else:
            values = torch.empty(shape, dtype=torch.float32, device=device)
            weights[name] = values.normal_(0.0, std, generator=generator).to(dtype)
    return weights


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted({folder / name for name in _weight_map(index).values()})
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder}: there is no *.safetensors")
    for file in files:
        if file.parent != folder or not file.is_file():
            raise ModelError(
                f"{file}: named by {index.name}, but there is no such file in {folder}"
            )
    return files


def _weight_map(index: Path) -> dict[str, str]:
    try:
        return {
            str(name): str(file)
            for name, file in json.loads(index.read_text())["weight_map"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: not an index of weights: {error!r}") from error


def _tensors(file: Path, shapes: Shapes) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                if name.endswith(_IGNORED) or (name == "lm_head.weight" and name not in shapes):
                    continue
                tensor = opened.get_tensor(name)
                _check(file, name, tensor, shapes)
                yield name, tensor
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file}: cannot read it as safetensors: {error}") from error


def _check(file: Path, name: str, tensor: Tensor, shapes: Shapes) -> None:
    if name not in shapes:
        raise ModelError(f"{file}: tensor {name!r} is not one that config.json's architecture has")
    if tuple(tensor.shape) != shapes[name]:
        raise ModelError(
            f"{file}: tensor {name!r} is {tuple(tensor.shape)}; config.json makes it {shapes[name]}"
        )
    if not tensor.is_floating_point():
        raise ModelError(f"{file}: tensor {name!r} holds {tensor.dtype}; floating point is needed")
