"""A reload changes only the settings that may change in a running server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from exporters.settings import UpstreamSettings
from gateway.configuration.changes import LIVE, compare_configs
from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.configuration.sections import Config, WorkSettings
from gateway.configuration.server import ServerSettings
from gateway.operations.list import declared_tables
from spool.registry.document_table import DocumentTable
from spool.registry.registry import Registry  # noqa: F401 - imports every table

ROOT = Path(__file__).parents[3]


def test_reload_applies_only_live_settings() -> None:
    """
    After a reload, live settings have their new values, and all other settings keep their running values
    until a restart.
    """
    running = Config()
    prices = PriceSettings(override=(PriceOverride(model="m", input=Decimal(1)),))
    new = replace(
        running,
        data_dir=Path("elsewhere"),
        prices=prices,
        server=ServerSettings(accept_bearer=True, listen="127.0.0.1:1"),
        upstream=UpstreamSettings(base_url="https://example.com"),
    )
    found = compare_configs(running, new)
    assert {"server.accept_bearer", "upstream.base_url", "prices.override"} == set(found.changed)
    assert {"data_dir", "server.listen"} == set(found.needs_restart)
    assert replace(new, data_dir=running.data_dir, server=ServerSettings(accept_bearer=True)) == found.config


@pytest.mark.parametrize(
    ("running", "new", "is_taken"),
    [
        (("a", "b", None), ("c", "b", None), True),
        (("a", "b", "ca"), ("a", "b", "other"), True),
        ((None, None, None), ("a", "b", None), False),
        (("a", "b", None), ("a", "b", "ca"), False),
        (("a", "b", None), (None, None, None), False),
    ],
)
def test_tls_is_renewed_and_not_switched(
    running: tuple[str | None, ...], new: tuple[str | None, ...], is_taken: bool
) -> None:
    """A reload may replace a certificate. Turning TLS or client certificates on or off needs a restart."""

    def config(names: tuple[str | None, ...]) -> Config:
        cert, key, ca = (None if name is None else Path(name) for name in names)
        return Config(server=ServerSettings(tls_cert_file=cert, tls_key_file=key, tls_client_ca_file=ca))

    found = compare_configs(config(running), config(new))
    assert is_taken == (not found.needs_restart)
    assert found.config == config(new if is_taken else running)


def test_limits_of_tables_are_live_settings() -> None:
    """The limits of tables are read for each new row, so they or their sections are live (in `LIVE`)."""
    declared = [table for table in declared_tables() if issubclass(table, DocumentTable)]
    own = [table for table in tables() if table.__module__.startswith("spool.")]
    bounds = {table.limit for table in (*own, *declared) if not table.most}
    assert bounds > {table.limit for table in declared if not table.most} > set()
    assert set() == {bound for bound in bounds if LIVE.isdisjoint((bound, bound.partition(".")[0]))}


def tables() -> Iterator[type[DocumentTable[Any]]]:
    """Yield every document table that has a limit."""
    waiting: list[type[DocumentTable[Any]]] = [DocumentTable]
    while waiting:
        found = waiting.pop()
        waiting += found.__subclasses__()
        if hasattr(found, "limit"):
            yield found


def test_document_lists_every_live_setting() -> None:
    """`reload.md` lists every live setting and the settings of TLS. Every setting that it lists exists."""
    table = (ROOT / "docs/operations/reload.md").read_text().partition("| settings |")[2]
    named = set(
        re.findall(
            r"`([a-z_.]+)`", "".join(row.split("|")[1] for row in table.splitlines() if row[:3] == "| `")
        )
    )
    tls = {"server.tls_cert_file", "server.tls_key_file", "server.tls_client_ca_file"}
    assert LIVE | tls == named
    parts = {"server": ServerSettings, "work": WorkSettings}
    known = {field.name for field in fields(Config)}
    known |= {f"{section}.{field.name}" for section, part in parts.items() for field in fields(part)}
    assert set() == named - known
