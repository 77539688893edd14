"""The bundle for Open Policy Agent: its signature by another library, its hashes, its bytes, and a real OPA."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest

from gateway.devices.agent.policy.signatures import WebTokenSigningKey
from gateway.money.budgets.opa_bundle import KEY_ID, build_bundle
from gateway.money.budgets.verdicts import ACTING
from tests.gateway.money.budgets.house import House
from tests.gateway.money.budgets.test_verdicts import NOW, board_of

OPA = os.environ.get("TOLLHOUSE_OPA") or shutil.which("opa")
# characters that JSON encoders write in different ways
ODD = '\u2028\u2029\x00\x08\x0c\x1f\x7f<&>"\\/\U0001f600é'


def members(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle))) as archive:
        return {
            member.name: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }


def claims(bundle: bytes, key: WebTokenSigningKey) -> Any:
    """Check the signature with another library, and return the signed hashes."""
    [token] = json.loads(members(bundle)[".signatures.json"])["signatures"]
    assert {"alg": "ES256", "kid": KEY_ID} == {
        name: value for name, value in jwt.get_unverified_header(token).items() if name != "typ"
    }
    return jwt.decode(token, key.public_pem, algorithms=["ES256"])


async def bundle(house: House) -> bytes:
    board = house.evaluator.verdicts
    return await board.signed_bundle(ACTING, await board.current_signed_table(ACTING))


async def house_with_a_budget(owner: str = "search") -> House:
    house = await House(at=NOW).start()
    await house.budget(await house.view(), per="team", default_amount="1")
    house.spend("2.5", team=owner)
    return house


async def test_it_has_the_table_and_a_signature() -> None:
    house = await house_with_a_budget()
    made = await bundle(house)
    assert [".signatures.json", ".manifest", "data.json"] == [*members(made)]
    board = house.evaluator.verdicts
    assert (
        json.loads((await board.current_signed_table(ACTING)).body)
        == json.loads(members(made)["data.json"])["tollhouse"]
    )
    files = {file["name"] for file in claims(made, board.bundle_signing_key)["files"]}
    assert {".manifest", "data.json"} == files
    with pytest.raises(jwt.InvalidSignatureError):
        claims(made, WebTokenSigningKey(b"other"))


async def test_all_gateways_and_restarts_return_the_same_bytes() -> None:
    house = await house_with_a_budget()
    made = await bundle(house)
    other = board_of(house)
    assert made == await other.signed_bundle(ACTING, await other.current_signed_table(ACTING))
    old = await house.evaluator.verdicts.current_signed_table(ACTING)
    await house.restart()
    assert made == await bundle(house)
    house.spend("3", team="search")
    house.clock.at += 60
    assert made != await bundle(house)
    # a reader that still has an old table gets its tag
    assert made == await house.evaluator.verdicts.signed_bundle(ACTING, old)


def test_signatures_have_64_bytes() -> None:
    """A signature always has 64 bytes: its numbers are padded if they begin with zeros."""
    for seed in range(300):
        key = WebTokenSigningKey(seed.to_bytes(2))
        assert 86 == len(key.sign_web_token(b"{}", KEY_ID).rpartition(".")[2])


def opa(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(OPA), *map(str, arguments)], capture_output=True, text=True, check=False)


def verified(bundle: bytes, key: WebTokenSigningKey, place: Path) -> subprocess.CompletedProcess[str]:
    """Let OPA read a bundle with the check of its signature."""
    (place / "key.pem").write_bytes(key.public_pem)
    (place / "bundle.tar.gz").write_bytes(bundle)
    checks = (
        "--verification-key",
        place / "key.pem",
        "--verification-key-id",
        KEY_ID,
        "--signing-alg",
        "ES256",
    )
    return opa("build", "--bundle", place / "bundle.tar.gz", *checks, "-o", place / "out.tar.gz")


@pytest.mark.skipif(OPA is None, reason="needs opa")
async def test_a_real_opa_reads_it(tmp_path: Path) -> None:
    """
    OPA verifies the bundle's signature and reads the row, whatever characters a name has. It rejects a bundle of
    another key.
    """
    house = await house_with_a_budget(ODD)
    key = house.evaluator.verdicts.bundle_signing_key
    made = await bundle(house)
    done = verified(made, key, tmp_path)
    assert 0 == done.returncode, done.stderr
    read = opa("eval", "--bundle", tmp_path / "bundle.tar.gz", "data.tollhouse.rows[0].owner")
    owner = json.loads(members(made)["data.json"])["tollhouse"]["rows"][0]["owner"]
    assert owner == json.loads(read.stdout)["result"][0]["expressions"][0]["value"]
    refused = verified(made, WebTokenSigningKey(b"other"), tmp_path)
    assert 0 != refused.returncode
    assert "failed to verify JWT signature" in refused.stdout + refused.stderr


@pytest.mark.skipif(OPA is None, reason="needs opa")
def test_a_real_opa_hashes_as_we_do(tmp_path: Path) -> None:
    """Random tables with floats, empty lists and odd texts have the hashes that OPA computes."""
    chance = random.Random(7)
    key = WebTokenSigningKey(b"seed")
    for _ in range(5):
        table = {
            "a": [chance.random() * 10 ** chance.randrange(-3, 9) for _ in range(20)],
            "b": {"".join(chance.choices(ODD, k=5)): [] for _ in range(9)},
            "c": [None, True, 5.0, 10**15, {}],
        }
        done = verified(build_bundle(msgspec.json.encode(table, order="sorted"), 3, key), key, tmp_path)
        assert 0 == done.returncode, done.stderr
