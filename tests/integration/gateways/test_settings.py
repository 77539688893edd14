"""Gateways on one PostgreSQL with different settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.configuration.sections import PrivacySettings
from gateway.money.insights.detectors import service
from gateway.operations.money.insights import make_insight_updater
from tests.integration.conftest import Serve
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema
from tests.waiting import until


async def test_what_they_have_of_each_other(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the settings of two gateways differ, either gateway reports the difference as an insight. The insight
    ends by itself when the difference is gone.
    """
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=replace(config, storage=replace(config.storage, node_name="one")))
    storage = replace(config.storage, node_name="other")
    await serve(
        config=replace(config, storage=storage, privacy=PrivacySettings(emails="drop")), key_name="another"
    )
    services = one.app.services.operators

    async def both_have_told() -> bool:
        return len(await services.installation.leases.differing_node_settings()) == 2

    await until(both_have_told)
    monkeypatch.setattr(service, "DIFFERENT_AFTER_S", -60.0)
    monkeypatch.setattr(service, "OLD_AFTER_S", -1.0)
    table = services.installation.require_registry().insights
    found = []
    for _ in range(2):
        report = await make_insight_updater(services).find_and_store_insights()
        assert not report.failed
        found.append(
            {each.title: each.description for each in await table.detector_insights() if each.present}
        )
        monkeypatch.undo()
    told = found[0].pop("Gateways use different settings")
    assert "privacy.emails: one | other." in told
    assert {"A transaction in the database does not end"} == found[0].keys()
    assert {} == found[1]
