"""The contract suite calls every method of every protocol. A new method that no test calls fails here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from spool.billing import HourlyBillingFiles, SentBillingHours
from spool.container_files.container_rows import ContainerFileRows, ContainerUsage
from spool.deliveries.protocols import Deliveries, LakeDeliveries
from spool.log.partial_reports import PartialReports
from spool.log.protocols import RecordLog
from spool.postgres.container_files import PostgresContainerRows
from spool.postgres.deliveries.deliveries import PostgresDeliveries
from spool.postgres.log.log import PostgresLog
from spool.postgres.partial_reports import PostgresPartialReports
from spool.postgres.streams import PostgresStreams
from spool.sql.billing import SqlBillingDrops, SqlBillingHours
from spool.sql.container_files import SqlContainerRows, SqlContainerUsage
from spool.sql.lake import SqlLakeDeliveries
from spool.sql.streams import SqlStreams
from spool.sqlite.deliveries.deliveries import SqliteDeliveries
from spool.sqlite.log.log import SqliteLog
from spool.sqlite.partial_reports import SqlitePartialReports
from spool.streams import StreamReader

# For each object name that tests use: its protocol, and the classes of the engines.
PROTOCOLS: dict[str, tuple[type, tuple[type, ...]]] = {
    "log": (RecordLog, (SqliteLog, PostgresLog)),
    "deliveries": (Deliveries, (SqliteDeliveries, PostgresDeliveries)),
    "partial_reports": (PartialReports, (SqlitePartialReports, PostgresPartialReports)),
    "billing_hours": (SentBillingHours, (SqlBillingHours,)),
    "landings": (LakeDeliveries, (SqlLakeDeliveries,)),
    "stored": (ContainerFileRows, (SqlContainerRows, PostgresContainerRows)),
    "container_usage": (ContainerUsage, (SqlContainerUsage,)),
    "billing_drops": (HourlyBillingFiles, (SqlBillingDrops,)),
    "streams": (StreamReader, (SqlStreams, PostgresStreams)),
}


def verbs(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_") and callable(getattr(protocol, name))}


@cache
def called() -> set[tuple[str, str]]:
    """
    Return the methods that were called. A method that an engine lacks would otherwise be found only by its first
    call.
    """
    found = set()
    for path in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if isinstance(owner, ast.Attribute):
                found.add((owner.attr, node.func.attr))
            elif isinstance(owner, ast.Name):
                found.add((owner.id, node.func.attr))
            elif isinstance(
                owner, ast.Call
            ):  # the owner is a call, for example storage.small.of(BILLING_HOURS)
                found |= {
                    (each.id.lower(), node.func.attr) for each in owner.args if isinstance(each, ast.Name)
                }
    return found


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_verb_is_exercised(name: str) -> None:
    protocol, _ = PROTOCOLS[name]
    assert set() == {verb for verb in verbs(protocol) if (name, verb) not in called()}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_engine_has_every_verb(name: str) -> None:
    """A method that an engine lacks would otherwise be found only by its first call."""
    protocol, engines = PROTOCOLS[name]
    for engine in engines:
        assert set() == {verb for verb in verbs(protocol) if not hasattr(engine, verb)}, engine
