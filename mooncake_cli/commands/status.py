"""`mooncake status`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import typer

from mooncake_cli.flags import Json
from mooncake_cli.http import Unreachable, get_json
from mooncake_cli.render import clear_screen, print_table
from mooncake_core.errors import MooncakeError, WireError
from mooncake_core.units import format_size

Report = Mapping[str, Any]

INTERVAL_S = 2.0
DEFAULT_CONDUCTOR = "127.0.0.1:8000"
DEFAULT_MASTER = "127.0.0.1:7401"
_FLAGS = {
    "conductor": "--conductor is the address that requests go to",
    "master": "--master is here the master's admin address (its --admin, 7401 by default), "
    "not the one that clients and nodes use",
}


def command(
    conductor: str = typer.Option(
        "", metavar="HOST:PORT", help=f"Ask this conductor. [default: {DEFAULT_CONDUCTOR}]"
    ),
    master: str = typer.Option(
        "",
        metavar="HOST:PORT",
        help="Ask this master at its admin address. [default, where there is no "
        f"conductor: {DEFAULT_MASTER}]",
    ),
    watch: bool = typer.Option(False, "--watch", help="Again and again, until Ctrl-C."),
    as_json: bool = Json,
) -> None:
    """Show a running cluster: members, store, hit rate.

    A conductor knows the instances and asks its master about the store; a master knows the store.
    """
    if not watch:
        _show(_ask(conductor, master), as_json=as_json)
        return
    while True:
        _show(_ask_again(conductor, master), as_json=as_json, clear=True)
        time.sleep(INTERVAL_S)


def _ask(conductor: str, master: str) -> Report:
    """Return what the servers say; a master that was named knows better than its conductor."""
    if not conductor and not master:
        return _ask_defaults()
    report: dict[str, Any] = {}
    if conductor:
        report.update(_report(conductor, "conductor", "members"))
    if master:
        report["store"] = _report(master, "master", "objects")
    return report


def _ask_defaults() -> Report:
    try:
        return _ask(DEFAULT_CONDUCTOR, "")
    except Unreachable as error:
        try:
            return _ask("", DEFAULT_MASTER)
        except Unreachable:
            raise Unreachable(
                f"{error}, nor does a master at {DEFAULT_MASTER}; name --conductor or --master"
            ) from error


def _ask_again(conductor: str, master: str) -> Report:
    try:
        return _ask(conductor, master)
    except MooncakeError as error:
        return {"error": str(error)}


def _report(address: str, role: str, key: str) -> Report:
    """Return what the process of a role says, in which `key` always is."""
    try:
        status, report = get_json(address, "/status")
    except WireError as error:
        raise WireError(f"{error}; {_FLAGS[role]}") from error
    if status != 200 or not isinstance(report, dict):
        raise MooncakeError(f"http://{address}/status: no status, but HTTP {status}: {report}")
    if key not in report:
        raise MooncakeError(
            f"http://{address}/status: who answers there is no {role}; {_FLAGS[role]}"
        )
    return report


def _show(report: Report, *, as_json: bool, clear: bool = False) -> None:
    if as_json:
        print(json.dumps(report), flush=True)
        return
    if clear:
        clear_screen()
    if "error" in report:
        print(report["error"])
    if "members" in report:
        _show_instances(report)
    store = report.get("store")
    if store:
        _show_store(store)
    elif "members" in report:
        print("store: the conductor does not reach its master")


def _show_instances(report: Report) -> None:
    rate = report.get("hit_rate")
    print(
        f"model {report.get('model', '?')}, {report.get('in_flight', '?')} requests in flight\n"
        f"hit rate {'-' if rate is None else f'{rate:.1%}'}: "
        f"{report.get('cached_tokens', '?')} of {report.get('prompt_tokens', '?')} prompt tokens"
    )
    columns = ["role", "where", "pid", "runs", "queued\ntokens", "free\npages"]
    columns += ["reserved", "quaran-\ntined"]
    print_table(columns, [_instance(member) for member in report["members"]], title="Instances")


def _instance(member: Report) -> list[str]:
    load = member.get("load") or {}
    keys = ("queued_tokens", "free_pages", "reserved_pages", "quarantined_pages")
    return [
        str(member.get("role", "?")),
        str(member.get("url", "?")).removeprefix("http://"),
        str(member.get("pid", "?")),
        str(load.get("running", "?")),
        *(str(load.get(key, "?")) for key in keys),
    ]


def _show_store(store: Report) -> None:
    hits, gets = store.get("hits"), store.get("gets")
    rate = f"{hits / gets:.1%}" if hits is not None and gets else "-"
    print(
        f"store: {store.get('objects', '?')} objects, {_size(store, 'used_bytes')} of "
        f"{_size(store, 'capacity_bytes')} used, {_size(store, 'quarantined_bytes')} quarantined\n"
        f"reads that hit: {rate}"
    )
    rows = [
        [
            str(node.get("name") or "-"),
            _domain(node),
            str(node.get("endpoint", "?")),
            str(node.get("state", "?")),
            _size(node, "used_bytes"),
            _size(node, "capacity_bytes"),
        ]
        for node in store.get("nodes", ())
    ]
    print_table(["name", "domain", "where", "state", "used", "capacity"], rows, title="Store nodes")


def _domain(node: Report) -> str:
    domain = node.get("domain", "?")
    return "its host" if domain == node.get("host_id") else str(domain)


def _size(report: Report, key: str) -> str:
    value = report.get(key)
    return format_size(value) if isinstance(value, int) else "?"
