"""`mooncake topo`."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from mooncake_cli.flags import Json
from mooncake_cli.topo_tables import print_host
from mooncake_core.errors import ConfigError
from mooncake_core.topology import (
    Advertised,
    Filter,
    Host,
    Report,
    Wishes,
    advertise_address,
    describe_host,
    encode_matrix,
    load_matrix,
    name_gpus,
    parse_overrides,
    read_host,
    unmet,
)

_NOT_MET = 3

Devices: Any = typer.Option(
    [], metavar="NAME", help="Use no other device: a name or a glob. May be repeated."
)
NotDevices: Any = typer.Option(
    [], metavar="NAME", help="Do not use this: a name or a glob. May be repeated."
)


def command(  # noqa: PLR0913  # one a flag
    *,
    sysroot: Path = typer.Option(
        Path("/"), metavar="DIR", help="Read a recorded copy of /sys, /proc and /dev below DIR."
    ),
    only: list[str] = Devices,
    exclude: list[str] = NotDevices,
    gid: str = typer.Option("", metavar="PORT=N,...", help="Use this GID, such as mlx5_0=3."),
    peer: str = typer.Option("", metavar="ADDRESS", help="Prefer GIDs in this peer's subnet."),
    use: Path = typer.Option(None, metavar="FILE", help="Take the NIC preferences from a file."),
    matrix: bool = typer.Option(
        False, "--matrix", help="Print the NIC preferences alone, as JSON."
    ),
    master: str = typer.Option(
        "", metavar="HOST[:PORT]", help="Say which address to tell others, with this master."
    ),
    require: str = typer.Option(
        "", metavar="rdma|N", help="Exit with 3 without usable RDMA (rdma:N: ports) or N NICs."
    ),
    as_json: bool = Json,
) -> None:
    """Show this host's NICs, RDMA devices, NUMA nodes and GPUs.

    From sysfs and procfs alone, with a verdict for every device: whether it is used, and why not.
    What cannot be read is said, and is no error: the exit code is 0, or 3 when what --require asks
    for is not there.
    """
    if not sysroot.is_dir():
        raise ConfigError(f"--sysroot:sysroot: {sysroot} is no folder")
    host = read_host(sysroot)
    if sysroot == Path("/"):
        host = name_gpus(host)
    chosen = Filter(only=tuple(only), exclude=tuple(exclude))
    chosen.check(host)
    report = describe_host(
        host,
        Wishes(
            chosen=chosen,
            overrides=parse_overrides(host, gid),
            peer=peer,
            matrix=load_matrix(use, host) if use else None,
            matrix_file=str(use or ""),
        ),
    )
    advertised = advertise_address(host, _look_up(master)) if master else None
    missing = unmet(report, require) if require else ()
    if matrix:
        print(encode_matrix(report.matrix))
    elif as_json:
        print(_json(host, report, advertised, missing))
    else:
        print_host(host, report, advertised)
    _warn("not read", host.problems)
    _warn("warning", (*report.warnings, *(advertised.warnings if advertised else ())))
    _warn("not met", missing)
    if missing:
        raise typer.Exit(_NOT_MET)


def _json(host: Host, report: Report, advertised: Advertised | None, missing: Sequence[str]) -> str:
    answer = {
        **msgspec.structs.asdict(host),
        **msgspec.structs.asdict(report),
        "advertised": advertised,
        "not_met": missing,
    }
    return msgspec.json.encode(answer).decode()


def _warn(what: str, lines: Sequence[str]) -> None:
    for line in lines:
        print(f"{what}: {line}", file=sys.stderr)


def _look_up(address: str) -> str:
    """Return the IP address of host, host:port or [host]:port."""
    bare = re.sub(r":[0-9]+$", "", address) if address.count(":") == 1 else address
    name = re.sub(r"^\[(.*)\](:[0-9]+)?$", r"\1", bare)
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(f"--master:{address}: nothing is known of {name!r}: {error}") from error
