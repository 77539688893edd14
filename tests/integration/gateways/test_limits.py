"""Limits of an installation that several gateways reach at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.intake import stream_admission
from spool.postgres.registry.follower import RegistryChangeFollower
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema


async def test_streams_beyond_the_limit(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Stored streams are counted, so the limit holds even at a gateway that has not seen the other's new streams.
    """

    async def no_look(self: RegistryChangeFollower) -> None:
        """Hide new streams from both gateways."""

    monkeypatch.setattr(RegistryChangeFollower, "read_tables_without_announcements", no_look)
    monkeypatch.setattr(stream_admission, "FRESH_S", 1e9)
    schema = new_schema()
    config = replace(
        shared_config(schema.dsn, schema.name, tmp_path),
        spool=SpoolSettings(hold=0, counter_wait=0, max_streams=2),
    )
    gateways = [await serve(config=config, key_name=f"sender {place}") for place in range(2)]
    scopes = ["unit-cost_v1:create_telemetry_stream"]
    keys = [
        [await gateway.make_key(f"{place} {n}", scopes=scopes) for n in range(2)]
        for place, gateway in enumerate(gateways)
    ]
    statuses = []
    for place, key, name in ((0, 0, "a"), (1, 0, "b"), (0, 1, "c"), (1, 1, "d"), (0, 0, "a"), (1, 0, "b")):
        path = f"/unit-cost/v1/telemetry/allocation/{name}"
        answer = await gateways[place].send(path, b"{}", method="PUT", key=keys[place][key])
        statuses.append(answer.status)
    assert [201, 201, 429, 429, 200, 200] == statuses
    assert ["a", "b"] == [stream.name for stream in await gateways[0].app.services.storage.streams.streams()]
