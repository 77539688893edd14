"""The key that a deployment provides in a file, on a server that is killed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from gateway.cli import doctor
from spool.registry.keys import LEGACY_NAME
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span

FIRST, SECOND = "the-first-secret", "the-second-secret"


def test_acknowledged_changes_of_own_key_survive_a_kill(
    installations: Callable[..., Tollhouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Disabling, rotating or deleting the deployment's key survives kill -9. `doctor` reports the state of the key in
    the file with and without a server, and `check` reports it with a server.
    """
    # no flush of the disk counts as hanging, because the disk of this machine may be slow
    monkeypatch.setattr(doctor, "HANGING_FLUSH_S", inf)
    one = installations(server='api_key_file = "key"')
    file = one.directory / "key"
    file.write_text(FIRST)

    def status(secret: str) -> int:
        return post(one.url, request([span("chatcmpl-legacy-000000000001")]), secret).status

    def start_again() -> None:
        one.kill()
        one.start()

    def warnings() -> list[str]:
        found = one.json("doctor")["doctor"]["found"]
        return [each["words"] for each in found if each["about"] == "key file"]

    one.start()
    assert 200 == status(FIRST)
    one.json("keys", "disable", LEGACY_NAME)
    start_again()
    assert 401 == status(FIRST)
    one.json("keys", "enable", LEGACY_NAME)
    assert status(FIRST) == 200
    assert warnings() == []
    file.write_text(SECOND)
    start_again()
    assert [401, 200] == [status(secret) for secret in (FIRST, SECOND)]
    one.json("keys", "delete", LEGACY_NAME, "--confirm", LEGACY_NAME)
    start_again()
    assert {401} == {status(SECOND) for _ in range(40)}
    assert any("key_not_open" in line for line in one.log)
    still = "still contains a key that was deleted"
    assert [True] == [still in words for words in warnings()]
    checked = one.json("check")["warnings"]
    assert [True] == [still in words for words in checked if "server.api_key_file" in words]
    one.stop()
    assert 1 == len(warnings())
