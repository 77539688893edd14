"""The table of verdicts over HTTP: who gets it, its tag, waiting readers and the signature."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from gateway.money.budgets import verdicts
from spool.registry.scopes import ENROLL
from tests.integration.conftest import Answer
from tests.integration.operations.money.test_published_budgets import CALL, Asking, asking
from tests.integration.receivers.test_devices import PLANE

__all__ = ["asking"]
URL = "/v2/budgets/verdicts"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the table with the ledger at each look, and look often."""
    monkeypatch.setattr(verdicts, "REFRESH_S", 0.0)
    monkeypatch.setattr(verdicts, "LOOK_S", 0.05)


async def read(asking: Asking, key: str, path: str = URL, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await asking.serving.send(path, b"", None, method="GET", key=key, headers=sent)


async def reader(asking: Asking) -> str:
    return await asking.serving.make_key("enforcer", scopes=["budgets:read_budgets"])


async def test_an_enforcer_reads_signed_verdicts(asking: Asking) -> None:
    """The signature of the body is checked with the key that the operator API shows. A reader that has it gets 304."""
    key = await reader(asking)
    budget = (await asking.create())["budget"]
    await asking.calls(2)
    answer = await read(asking, key)
    [row] = json.loads(answer.body)["rows"]
    assert (budget["id"], "over", str(2 * CALL)) == (row["budget"], row["state"], row["spent"])
    public = asking.serving.app.services.operators.money.require_budgets().verdicts.key.public_pem
    scheme, _, signature = answer.headers["Tollhouse-Signature"].partition("=")
    checking = load_pem_public_key(public)
    assert "ed25519" == scheme
    assert isinstance(checking, Ed25519PublicKey)
    checking.verify(b64decode(signature), answer.body)
    again = await read(asking, key, If_None_Match=answer.headers["ETag"])
    assert (304, b"") == (again.status, again.body)
    assert 200 == (await read(asking, key, URL + "?state=all")).status
    assert 400 == (await read(asking, key, URL + "?state=within")).status


async def test_readers_wait_for_a_change(asking: Asking) -> None:
    """
    Waiting readers get the next table as soon as it differs, and meanwhile the gateway accepts calls. A wait without a
    change ends with 304.
    """
    key = await reader(asking)
    await asking.create()
    tag = (await read(asking, key)).headers["ETag"]
    waiting = [
        asyncio.create_task(read(asking, key, If_None_Match=tag, Prefer="respond-async, wait=60"))
        for _ in range(50)
    ]
    await asking.calls(2)
    answers = await asyncio.gather(*waiting)
    assert {200} == {answer.status for answer in answers}
    assert 1 == len({answer.body for answer in answers})
    tag = answers[0].headers["ETag"]
    assert 304 == (await read(asking, key, If_None_Match=tag, Prefer="wait=1")).status


async def test_sending_and_device_keys_get_no_verdict(asking: Asking) -> None:
    serving = asking.serving
    body = json.dumps({"device_id": "laptop-1", "want_key": True}).encode()
    enroller = await serving.make_key("enroller", scopes=[ENROLL])
    enrolled = json.loads((await serving.send(PLANE + "enroll", body, key=enroller)).body)
    for key in (serving.key, enrolled["key"]):
        answer = await read(asking, key)
        assert 403 == answer.status
        assert b"rows" not in answer.body
