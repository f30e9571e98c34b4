"""Names of NVIDIA GPUs, from NVML where its binding and the driver are there."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mooncake_core.topology.host import Host


def name_gpus(host: Host) -> Host:
    """Return this machine's inventory with the names of its GPUs. May wake a driver up."""
    if not host.gpus:
        return host
    names = _names()
    named = (msgspec.structs.replace(gpu, name=names.get(gpu.pci, "")) for gpu in host.gpus)
    return msgspec.structs.replace(host, gpus=tuple(named))


def _names() -> Mapping[str, str]:
    """Return PCI address -> name; empty without the optional pynvml or without the driver."""
    try:
        # Optional: the extra "gpu" brings it.
        import pynvml  # noqa: PLC0415
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {
            _sysfs_address(pynvml.nvmlDeviceGetPciInfo(handle).busId): _text(
                pynvml.nvmlDeviceGetName(handle)
            )
            for handle in handles
        }
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _sysfs_address(bus_id: bytes | str) -> str:
    """NVML writes an eight-digit domain in capitals, sysfs a four-digit one."""
    return _text(bus_id).lower()[-12:]


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
