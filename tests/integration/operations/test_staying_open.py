"""Many API calls of one command, without a server."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from gateway.cli.operator.client import OperatorClient
from gateway.configuration.sections import Config
from gateway.service import offline


def test_a_data_directory_without_a_server_is_opened_once_for_many_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A command without a server opens the data directory once for many API calls, and closes it at the end, so that
    the next command can use it.
    """
    opened: list[Path] = []
    open_socket = offline.open_offline_operator_socket

    def counted(
        config: Config, *, version: str, orphans_unnamed_routes: bool = False
    ) -> AbstractAsyncContextManager[Path]:
        opened.append(config.data_dir)
        return open_socket(config, version=version, orphans_unnamed_routes=orphans_unnamed_routes)

    monkeypatch.setattr(offline, "open_offline_operator_socket", counted)
    data = tmp_path / "data"
    data.mkdir()
    client = OperatorClient(Config(data_dir=data), "ada@example.com")
    with client.client_for_many_requests() as staying:
        assert [[], []] == [staying.request("GET", "/keys")["keys"] for _ in range(2)]
        assert [data] == opened
    assert [] == client.request("GET", "/keys")["keys"]
    assert [data, data] == opened
