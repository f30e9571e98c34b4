"""Everything that can be said of a host, for people and programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from mooncake_core.errors import UsageError
from mooncake_core.topology.distance import Distance
from mooncake_core.topology.filters import EVERYTHING, Filter
from mooncake_core.topology.gids import Overrides, RankedGid, rank_gids
from mooncake_core.topology.host import Host
from mooncake_core.topology.matrix import Matrix, build_matrix, carriers, distance_matrix
from mooncake_core.topology.rails import Rail, find_rails, talking_pairs
from mooncake_core.topology.usable import usable_addresses
from mooncake_core.topology.verdicts import Verdict, judge, rdma_reasons


class Wishes(Struct, frozen=True, kw_only=True):
    """What the user asks to be taken into account."""

    chosen: Filter = EVERYTHING
    overrides: Overrides = {}
    peer: str = ""
    """An address or GID; its subnet is preferred."""
    matrix: Matrix | None = None
    """Instead of the one that would be worked out."""
    matrix_file: str = ""
    """Where it is from."""


class Report(Struct, frozen=True, kw_only=True):
    """What follows from the inventory."""

    verdicts: tuple[Verdict, ...]
    gids: Mapping[str, tuple[RankedGid, ...]]
    """RDMA port -> its GIDs, the one that is used first."""
    rails: tuple[Rail, ...]
    pairs: tuple[tuple[str, str], ...]
    """NICs that reach each other."""
    distances: Mapping[str, Mapping[str, Distance]]
    """Location -> NIC -> PIX, PXB, PHB, NODE or SYS."""
    matrix: Matrix
    """Location -> preferred and secondary NICs."""
    matrix_file: str
    """Where the matrix is from; empty: it was worked out from the distances."""
    addresses: tuple[str, ...]
    """Of the TCP paths."""
    rdma_reasons: tuple[str, ...]
    """Why RDMA cannot be used; empty: it can."""
    warnings: tuple[str, ...]


def describe_host(host: Host, wishes: Wishes) -> Report:
    """Return the report."""
    chosen = wishes.chosen
    gids = {
        port.name: rank_gids(host, port, peer=wishes.peer, overrides=wishes.overrides)
        for port in host.rdma
    }
    rails = find_rails(host, chosen, wishes.overrides)
    return Report(
        verdicts=judge(host, chosen),
        gids=gids,
        rails=rails,
        pairs=talking_pairs(rails),
        distances=distance_matrix(host, carriers(host, chosen)),
        matrix=build_matrix(host, chosen) if wishes.matrix is None else wishes.matrix,
        matrix_file=wishes.matrix_file,
        addresses=usable_addresses(host, chosen),
        rdma_reasons=rdma_reasons(host, chosen),
        warnings=tuple(
            warning for each in gids.values() for gid in each for warning in gid.warnings
        ),
    )


def unmet(report: Report, requirement: str) -> tuple[str, ...]:
    """Return why a requirement is not met; empty: it is.

    Args:
        report: of the host.
        requirement: rdma: a usable RDMA port. N: so many usable NICs, RDMA ports where there are
            any, else network interfaces. rdma:N: so many usable RDMA ports.

    Raises:
        UsageError: it is none of these.
    """
    kind, count = _parse(requirement)
    ports = [each for each in report.verdicts if each.kind == "rdma"]
    candidates = ports
    if kind == "any" and not any(each.is_usable for each in ports):
        candidates = [each for each in report.verdicts if each.kind == "interface"]
    found = sum(each.is_usable for each in candidates)
    if found >= count:
        return ()
    reasons = tuple(
        f"{each.name}: {each.code}: {each.reason}" for each in candidates if not each.is_usable
    )
    what = "RDMA ports" if kind == "rdma" else "NICs"
    return (f"usable {what}: {found}, required: {count}", *(reasons or report.rdma_reasons))


def _parse(requirement: str) -> tuple[str, int]:
    match = re.fullmatch(r"(rdma)?(?:(?:^|:)([1-9][0-9]{0,3}))?", requirement, re.ASCII)
    if match is None or not requirement:
        raise UsageError(f"--require: {requirement}: write rdma, rdma:N or N")
    return "rdma" if match.group(1) else "any", int(match.group(2) or 1)
