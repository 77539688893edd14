"""A disk that is unreadable for a while: every address reports it, and none answers 500."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from spool.sqlite.database import Database
from tests.integration.conftest import Serve
from tests.integration.payloads import JSON, traces


async def test_an_error_of_the_disk_is_no_500_anywhere(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Senders get 503 and retry. Probes and metrics report the fault. When the disk works again, so does the server.
    """
    serving = await serve()

    async def fail(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        for verb in ("transaction", "read", "snapshot", "run"):
            patch.setattr(Database, verb, fail)
        assert 503 == (await serving.send("/v1/traces", traces(JSON))).status
        for path in ("/metrics", "/readyz", "/livez"):
            async with serving.client.get(serving.url + path) as answer:
                assert 503 == answer.status, path
        async with serving.client.get(f"{serving.url}/console/api/status") as answer:
            assert answer.status < 500
    assert 200 == (await serving.send("/v1/traces", traces(JSON))).status
