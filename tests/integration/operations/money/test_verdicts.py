"""The table of verdicts over HTTP: who gets it, its tag, waiting readers and the signature."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from base64 import b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from gateway.money.budgets import verdicts
from spool.registry.scopes import ENROLL
from tests.integration.conftest import Answer
from tests.integration.operations.money.test_published_budgets import CALL, Asking, asking
from tests.integration.receivers.test_devices import PLANE
from tests.spool.ledger.rebuilding import rebuild_without_end

__all__ = ["asking"]
URL = "/v2/budgets/verdicts"
BUNDLE = URL + "/bundle.tar.gz"
READERS = 200


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the table with the ledger at each look, and look often."""
    monkeypatch.setattr(verdicts, "REFRESH_S", 0.0)
    monkeypatch.setattr(verdicts, "LOOK_S", 0.05)


async def read(asking: Asking, key: str, path: str = URL, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await asking.serving.send(path, b"", None, method="GET", key=key, headers=sent)


async def waiting_readers(
    asking: Asking, key: str, tag: str, count: int, path: str = URL
) -> list[asyncio.Task[Answer]]:
    """Start readers that wait for a table with another tag, and return when all have arrived."""
    in_hand = asking.serving.app.services.receivers.in_hand
    before = in_hand.count
    prefer = "respond-async, wait=60"
    client = asking.serving.client
    assert client.connector is not None
    client.connector._limit = 2 * READERS  # aiohttp's limit is 100
    readers = [
        asyncio.create_task(read(asking, key, path, If_None_Match=tag, Prefer=prefer)) for _ in range(count)
    ]
    while in_hand.count < before + count:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    return readers


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
    public = asking.serving.app.services.operators.money.require_budgets().verdicts.signing_key.public_pem
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
    200 waiting readers get the next table as soon as it differs, and meanwhile the gateway accepts calls. A wait
    without a change ends with 304.
    """
    key = await reader(asking)
    await asking.create()
    tag = (await read(asking, key)).headers["ETag"]
    waiting = await waiting_readers(asking, key, tag, READERS)
    await asking.calls(2)
    answers = await asyncio.gather(*waiting)
    assert {200} == {answer.status for answer in answers}
    assert 1 == len({answer.body for answer in answers})
    tag = answers[0].headers["ETag"]
    assert 304 == (await read(asking, key, If_None_Match=tag, Prefer="wait=1")).status


async def test_a_stop_answers_waiting_readers(asking: Asking) -> None:
    """
    A stop of the server answers waiting readers with 304, and they do not delay it. Then the server refuses
    requests.
    """
    key = await reader(asking)
    await asking.create()
    tag = (await read(asking, key)).headers["ETag"]
    waiting = await waiting_readers(asking, key, tag, READERS)
    bundles = await waiting_readers(asking, key, tag, 10, BUNDLE)
    in_hand = asking.serving.app.services.receivers.in_hand
    assert await in_hand.close_and_wait(600)
    assert {304} == {answer.status for answer in await asyncio.gather(*waiting, *bundles)}
    assert 503 == (await read(asking, key)).status


async def test_opa_reads_a_bundle(asking: Asking) -> None:
    """The bundle for OPA has the tag of the table, and waits as OPA prefers. A key for sending gets no bundle."""
    key = await reader(asking)
    await asking.create()
    await asking.calls(2)
    answer = await read(asking, key, BUNDLE)
    assert (200, "application/vnd.openpolicyagent.bundles") == (answer.status, answer.headers["Content-Type"])
    with tarfile.open(fileobj=io.BytesIO(answer.body), mode="r:gz") as archive:
        data = archive.extractfile("data.json")
        assert data is not None
        assert json.loads((await read(asking, key)).body) == json.loads(data.read())["tollhouse"]
    tag = answer.headers["ETag"]
    assert tag == (await read(asking, key)).headers["ETag"]
    prefer = "modes=snapshot,delta;wait=1"
    again = await read(asking, key, BUNDLE, If_None_Match=tag, Prefer=prefer)
    assert (304, b"") == (again.status, again.body)
    assert 400 == (await read(asking, key, BUNDLE + "?state=near")).status
    assert 403 == (await read(asking, asking.serving.key, BUNDLE)).status


async def test_reader_learns_when_to_retry(asking: Asking) -> None:
    """While totals are counted again and no table exists yet, the answer has the seconds until a retry."""
    key = await reader(asking)

    async with rebuild_without_end(asking.serving.app.services.storage.ledger):
        for path in (URL, BUNDLE):
            answer = await read(asking, key, path)
            assert (503, "60") == (answer.status, answer.headers["Retry-After"])


async def test_sending_and_device_keys_get_no_verdict(asking: Asking) -> None:
    serving = asking.serving
    body = json.dumps({"device_id": "laptop-1", "want_key": True}).encode()
    enroller = await serving.make_key("enroller", scopes=[ENROLL])
    enrolled = json.loads((await serving.send(PLANE + "enroll", body, key=enroller)).body)
    for key in (serving.key, enrolled["key"]):
        answer = await read(asking, key)
        assert 403 == answer.status
        assert b"rows" not in answer.body
