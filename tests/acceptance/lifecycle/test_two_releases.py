"""
An upgrade without an interruption: gateways of this release and the next one, as real processes on one PostgreSQL.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spool.postgres.migrations import VERSION
from tests.acceptance.conftest import ROOT, Tollhouse
from tests.acceptance.lifecycle.next_release import COMMAND, NEXT_VERSION, RELEASE, make_next_release
from tests.faults.gateways.shared_site import SharedSite
from tests.spool.postgres_cluster import Schema
from tests.waiting import wait_until


def run(gateway: Tollhouse, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the release in `env` on a gateway's configuration."""
    return subprocess.run(
        [*COMMAND, *words, "--config", str(gateway.config)],
        cwd=gateway.directory,  # run outside the checkout, so that Python imports the packages of `env`
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def versions(gateway: Tollhouse) -> set[str]:
    """Return the releases of the running gateways by one gateway's status."""
    return {node["version"] for node in gateway.asked("/status")["nodes"] if node["live"]}


def accepted(gateway: Tollhouse) -> int:
    found: int = gateway.asked("/books")["topics"]["ai-telemetry"]["accepted"]
    return found


@pytest.mark.proves("two releases side by side")
@pytest.mark.timeout(600)
def test_an_upgrade_gateway_by_gateway(unmade_schema: Schema, tmp_path: Path) -> None:
    """
    The new release migrates the schema under load, works next to the old one, and then replaces it.

    Each call arrives upstream once, even if it was reported to both releases. The accounting of both agrees.
    """
    following = make_next_release(tmp_path / "next")
    rng = random.Random(22)
    site = SharedSite(
        tmp_path / "site", dsn=unmade_schema.dsn, schema=unmade_schema.name, rng=rng, count=2, hold="2s"
    )
    old, new = site.gateways
    try:
        old.start()
        with site.oracle.balanced(senders=1, pause_s=0.2):
            site.passes()
            migrated = run(new, following, "storage", "migrate", "--json")
            assert 0 == migrated.returncode, migrated.stderr
            told = json.loads(migrated.stdout)
            assert told["version_before"] == VERSION
            assert told["version"] == NEXT_VERSION
            # calls still pass after the old release has continued on the schema of the new one
            site.passes()
            new.start(following, COMMAND)
            wait_until(lambda: len(versions(old)) == 2, "the old one knows the new one")
            assert RELEASE in versions(old)
            twice = site.oracle.twice
            wait_until(lambda: site.oracle.twice >= twice + 5, "calls that both have acknowledged")
            # The new release fills its new field only in calls that the old release reported first. Chance
            # decides which release gets a call first.
            wait_until(lambda: _has_filled(unmade_schema), "a call that the old one has told first")
            assert old.json("spool", "verify")["balanced"]
            old.stop()
            old.start(following, COMMAND)
            wait_until(lambda: versions(old) == {RELEASE}, "all are of the new release")
            site.passes()
        site.judge().check()
        assert accepted(old) == accepted(new)
        _check_both_wrote(unmade_schema)
    finally:
        site.close()
    _set_version(unmade_schema, NEXT_VERSION + 1)
    refused = run(old, {"PYTHONPATH": str(ROOT)}, "serve")
    assert 2 == refused.returncode
    assert f"the schema has version {NEXT_VERSION + 1}" in refused.stderr
    assert f"this Tollhouse has version {VERSION}" in refused.stderr


def _check_both_wrote(schema: Schema) -> None:
    """Check that both releases committed, and that calls from the old release got the new field."""
    count = "SELECT count(*) FILTER (WHERE release IS NULL), count(release) FROM {schema}.commits"
    [(by_old, by_new)] = _rows(schema, count)
    assert by_old and by_new
    assert _has_filled(schema)


def _has_filled(schema: Schema) -> bool:
    filled = [fields for (fields,) in _rows(schema, "SELECT fields FROM {schema}.amendments")]
    return any(b"release" in fields for fields in filled)


def _set_version(schema: Schema, version: int) -> None:
    _rows(schema, f"UPDATE {{schema}}.facts SET value = '{version}' WHERE name = 'version' RETURNING name")


def _rows(schema: Schema, statement: str) -> list[Any]:
    with psycopg.connect(schema.dsn, autocommit=True) as connection:
        return connection.execute(statement.replace("{schema}", schema.name).encode()).fetchall()
