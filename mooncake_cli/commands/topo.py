"""`mooncake topo`."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from mooncake_cli.flags import Json
from mooncake_cli.topo_tables import print_host, print_paths
from mooncake_core.errors import ConfigError, MooncakeError, UsageError
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

if TYPE_CHECKING:
    from mooncake_core.topology.check import CheckedPath

_NOT_MET = 3

Only: Any = typer.Option(
    [], metavar="NAME", help="Use no other device: a name or a glob. May be repeated."
)
Exclude: Any = typer.Option(
    [], metavar="NAME", help="Do not use this: a name or a glob. May be repeated."
)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    host: Host
    report: Report
    advertised: Advertised | None
    paths: tuple[CheckedPath, ...]
    not_met: tuple[str, ...]


def command(  # noqa: PLR0913  # one a flag
    *,
    sysroot: Path = typer.Option(
        Path("/"), metavar="DIR", help="Read a recorded copy of /sys, /proc and /dev below DIR."
    ),
    only: list[str] = Only,
    exclude: list[str] = Exclude,
    gid: str = typer.Option("", metavar="PORT=N,...", help="Use this GID, such as mlx5_0=3."),
    peer: str = typer.Option("", metavar="ADDRESS", help="Prefer GIDs in this peer's subnet."),
    use: Path = typer.Option(None, metavar="FILE", help="Take the NIC preferences from a file."),
    matrix: bool = typer.Option(
        False, "--matrix", help="Print the NIC preferences alone, as JSON."
    ),
    master: str = typer.Option(
        "", metavar="HOST[:PORT]", help="Say which address to tell others, with this master."
    ),
    check: str = typer.Option(
        "", metavar="HOST:PORT", help="Try every path to the engine that listens there."
    ),
    require: str = typer.Option(
        "", metavar="rdma|N", help="Exit with 3 without usable RDMA (rdma:N: ports) or N NICs."
    ),
    as_json: bool = Json,
) -> None:
    """Show this host's NICs, RDMA devices, NUMA nodes and GPUs.

    From sysfs and procfs alone, with a verdict for every device: whether it is used, and why not.
    What cannot be read is said, and is no error. The exit code is 3 when what --require asks for
    is not there, and when no path of --check works: also when no engine answers there at all.
    """
    host = _read(sysroot)
    chosen = Filter(only=tuple(only), exclude=tuple(exclude))
    chosen.check(host)
    wishes = Wishes(
        chosen=chosen,
        overrides=parse_overrides(host, gid),
        peer=peer,
        matrix=load_matrix(use, host) if use else None,
        matrix_file=str(use or ""),
    )
    report = describe_host(host, wishes)
    answer = _Answer(
        host=host,
        report=report,
        advertised=advertise_address(host, _look_up(master)) if master else None,
        paths=_check(host, check, wishes, is_live=sysroot == Path("/")) if check else (),
        not_met=unmet(report, require) if require else (),
    )
    if matrix:
        print(encode_matrix(report.matrix))
    else:
        _show(answer, as_json=as_json)
    _complain(answer)


def _read(sysroot: Path) -> Host:
    if not sysroot.is_dir():
        raise UsageError(f"--sysroot: {sysroot} is no folder")
    host = read_host(sysroot)
    return name_gpus(host) if sysroot == Path("/") else host


def _look_up(address: str) -> str:
    """Return the IP address of host, host:port or [host]:port."""
    bare = re.sub(r":[0-9]+$", "", address) if address.count(":") == 1 else address
    name = re.sub(r"^\[(.*)\](:[0-9]+)?$", r"\1", bare)
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--master: {address}: nothing is known of {name!r}: {error}") from error


def _check(host: Host, endpoint: str, wishes: Wishes, *, is_live: bool) -> tuple[CheckedPath, ...]:
    if not is_live:
        raise UsageError(f"--check: {endpoint}: a recorded copy reaches nobody; omit --sysroot")
    # Only this needs the native library.
    from mooncake_core.topology.check import CheckedPath, check_paths  # noqa: PLC0415

    try:
        return check_paths(host, endpoint, chosen=wishes.chosen)
    except MooncakeError as error:
        name = type(error).__name__
        return (CheckedPath(local="", remote=endpoint, error=name, problem=str(error)),)
    except ValueError as error:
        raise UsageError(f"--check: {endpoint}: {error}") from error


def _show(answer: _Answer, *, as_json: bool) -> None:
    if not as_json:
        print_host(answer.host, answer.report, answer.advertised)
        if answer.paths:
            print_paths(answer.paths)
        return
    parts = [msgspec.structs.asdict(part) for part in (answer.host, answer.report)]
    rest = {
        "advertised": answer.advertised,
        "paths": answer.paths,
        "not_met": answer.not_met,
    }
    print(msgspec.json.encode({**parts[0], **parts[1], **rest}).decode())


def _complain(answer: _Answer) -> None:
    """Say what is wrong on stderr, and end with 3 if that was asked for."""
    warnings = answer.advertised.warnings if answer.advertised else ()
    failed = [path for path in answer.paths if path.error]
    _warn("not read", answer.host.problems)
    _warn("warning", (*answer.report.warnings, *warnings))
    _warn("no path", [_describe(path) for path in failed])
    _warn("not met", answer.not_met)
    if answer.not_met or (failed and len(failed) == len(answer.paths)):
        raise typer.Exit(_NOT_MET)


def _describe(path: CheckedPath) -> str:
    return f"{path.local or 'any address'} to {path.remote}: {path.error}: {path.problem}"


def _warn(what: str, lines: Sequence[str]) -> None:
    for line in lines:
        print(f"{what}: {line}", file=sys.stderr)
