"""
A process that reads one file in one way. It prints its peak memory and that of its child processes in bytes,
and its result.
"""

from __future__ import annotations

import csv
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from spool.errors import Invalid


def report(path: Path) -> object:
    from gateway.bills.statements.importing import read_reports, report_file_at
    from gateway.configuration.sections import ReconciliationSettings

    settings = ReconciliationSettings()
    file = report_file_at(path, max_unpacked_bytes=settings.max_file_bytes, now=1_790_812_800.0)
    return [
        each.read
        for each in read_reports([file], source=None, account=None, max_unpacked_bytes=settings.max_rows)
    ]


def page(path: Path) -> object:
    """Read a page of a billing pull, whose size is limited before it is parsed."""
    from gateway.bills.statements.importing import ReportFile, open_document
    from gateway.configuration.sections import ReconciliationSettings

    content = path.read_bytes()[: ReconciliationSettings().max_page_bytes]
    return type(open_document(ReportFile(name="pull", content=content, read_at=0.0)).root).__name__


def seats(path: Path) -> object:
    from gateway.bills.plans.seat_lists import parse_seat_list, read_bounded

    with path.open("rb") as file:
        return len(parse_seat_list(path.name, read_bounded(file, path.name)))


def machines(path: Path) -> object:
    from gateway.configuration.sections import DeviceSettings
    from gateway.devices.fleet.inventory_lists import read_inventory_list

    content = path.read_bytes()
    if len(content) > DeviceSettings().max_inventory_bytes:
        raise Invalid("over the limit of an inventory: 413")
    return len(read_inventory_list(path.name, content).machines)


def names(path: Path) -> object:
    from gateway.bills.plans.seat_lists import parse_user_names, read_bounded

    with path.open("rb") as file:
        return len(parse_user_names(path.name, read_bounded(file, path.name)))


def people(path: Path) -> object:
    from gateway.cli.operator.people import read_people

    with path.open(encoding="utf-8-sig") as file:
        return sum(1 for _ in read_people(file))


def rates(path: Path) -> object:
    from gateway.configuration.sections import CurrencySettings
    from gateway.money.currencies import RatesUnreadable, read_rates_file

    try:
        return len(read_rates_file(path, CurrencySettings().max_file_bytes))
    except RatesUnreadable as error:
        raise Invalid(str(error)) from error


def container(path: Path) -> object:
    return _series(path, "file", "")


def remote_write(path: Path) -> object:
    return _series(path, "remote_write", "")


def remote_write_2(path: Path) -> object:
    return _series(path, "remote_write", "io.prometheus.write.v2.Request")


def _series(path: Path, kind: str, request: str) -> object:
    from types import SimpleNamespace
    from typing import Any

    from gateway.clusters.usage.series import parse_series
    from spool.container_files.values import REMOTE_WRITE
    from spool.settings import ContainerSettings

    content = path.read_bytes()
    if len(content) > ContainerSettings().max_file_bytes:
        raise Invalid("over container.max_file_bytes: 413")
    file: Any = SimpleNamespace(
        kind=REMOTE_WRITE if kind == "remote_write" else kind, request=request, reference=path.name
    )
    return sum(1 for _ in parse_series(file, content))


def sent(path: Path) -> object:
    """Read a file as `tollhouse send` does."""
    from gateway.cli.send.request_bodies import UNREADABLE, RunningDigest, open_ungzipped, read_bodies

    try:
        with path.open("rb", buffering=0) as raw, open_ungzipped(raw) as content:
            return sum(len(body.content) for body in read_bodies(content, RunningDigest(())))
    except UNREADABLE as error:
        raise Invalid(str(error)) from error


def definition(path: Path) -> object:
    from gateway.core.faults import InvalidDefinition
    from gateway.money.allocation.language import parse_definition

    try:
        return len(parse_definition(path.read_bytes(), ("model", "team")).dimensions)
    except InvalidDefinition as error:
        raise Invalid(error.faults[0].error) from error


WAYS: dict[str, Callable[[Path], object]] = {
    each.__name__: each
    for each in (
        report, page, seats, machines, names, people, rates, container, remote_write, remote_write_2, sent, definition,
    )
}  # fmt: skip


def main() -> None:
    try:
        said = str(WAYS[sys.argv[1]](Path(sys.argv[2])))
    except (Invalid, csv.Error) as error:
        said = f"Invalid: {error}"
    used = max(_highest_kib(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    print(json.dumps({"bytes": used * 1024, "said": said[:300]}))


def _highest_kib() -> int:
    """Return this program's own peak memory. `getrusage` would start at the peak of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    main()
