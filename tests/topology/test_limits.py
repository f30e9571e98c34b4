"""What a process may have, as it is recorded."""

from pathlib import Path

import pytest

from mooncake_core.topology import Gpu, Host, Limits, name_gpus, read_host
from tests.topology.trees import write

LIMITS = (
    "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         {}              8388608 bytes"
)


def limits(root: Path, **files: str) -> Limits:
    return read_host(
        write(root, {name.replace("__", "/"): text for name, text in files.items()})
    ).limits


@pytest.mark.parametrize("text", ["8388608", "unlimited"])
def test_pinned_memory_is_the_soft_limit(tmp_path: Path, text: str) -> None:
    assert limits(tmp_path, proc__self__limits=LIMITS.format(text)).memlock == text


def test_ports_and_shared_memory_are_read(tmp_path: Path) -> None:
    found = limits(
        tmp_path,
        proc__sys__net__ipv4__ip_local_port_range="32768\t60999",
        proc__self__mounts="tmpfs /tmp tmpfs rw 0 0\nshm /dev/shm tmpfs rw,size=65536k 0 0",
    )
    assert (found.local_ports, found.shm_bytes) == ("32768-60999", 64 << 20)


def test_shared_memory_without_a_size_is_half_of_all(tmp_path: Path) -> None:
    mounts = "tmpfs /dev/shm tmpfs rw,nosuid 0 0"
    found = limits(tmp_path, proc__self__mounts=mounts, proc__meminfo="MemTotal:  1024 kB")
    assert found.shm_bytes == 512 << 10


@pytest.mark.parametrize(
    ("cgroup", "files", "memory", "cpus"),
    [
        (
            "0::/pod/one",
            {"pod/one/memory.max": "1073741824", "pod/one/cpuset.cpus.effective": "0-3"},
            "1073741824",
            "0-3",
        ),
        (
            "4:memory:/pod\n3:cpuset:/pod",
            {"memory/pod/memory.limit_in_bytes": "4096", "cpuset/pod/cpuset.effective_cpus": "1"},
            "4096",
            "1",
        ),
        ("0::/../elsewhere", {"memory.max": "max"}, "unlimited", ""),
        (
            "4:memory:/gone",
            {"memory/memory.limit_in_bytes": "9223372036854771712"},
            "unlimited",
            "",
        ),
        ("garbage", {"memory.max": "much"}, "", ""),
    ],
)
def test_the_own_cgroup_is_found_in_both_versions(
    tmp_path: Path, cgroup: str, files: dict[str, str], memory: str, cpus: str
) -> None:
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    found = limits(tmp_path, proc__self__cgroup=cgroup)
    assert (found.cgroup_memory, found.cgroup_cpus) == (memory, cpus)


def test_gpus_keep_no_name_where_no_driver_tells_one() -> None:
    host = Host(gpus=(Gpu(pci="ffff:ff:1f.7"),))
    assert name_gpus(host) == host
