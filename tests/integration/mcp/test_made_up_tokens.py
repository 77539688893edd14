"""Forged tokens: how many are verified, on which thread, and which requests wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.operations.holders.operators import SHARED_BURST
from gateway.people.authentication.access import GUESSES
from gateway.people.authentication.oidc import tokens
from gateway.people.authentication.oidc.provider import MAX_TRIES
from tests.integration.conftest import Serve
from tests.integration.mcp.people import Door, open_door
from tests.openid_provider import Key
from tests.rounds import IS_LONG

FLOOD = 120 if IS_LONG else 60
KINDS: list[dict[str, Any]] = [
    {"typ": "Refresh"}, {"typ": "Offline"}, {"token_type": "refresh_token"}, {"token_use": "refresh"},
    {"token_use": "id"}, {"token_type": 7},
]  # fmt: skip


@pytest_asyncio.fixture
async def door(serve: Serve, tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(serve, tmp_path, oidc={"default_role": "viewer"}) as opened:
        yield opened


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the thread of each signature verification."""
    seen: list[str] = []
    verify = tokens.is_signed

    def noted(text: str, algorithm: str, key: Mapping[str, Any]) -> bool:
        seen.append(threading.current_thread().name)
        return verify(text, algorithm, key)

    monkeypatch.setattr("gateway.people.authentication.oidc.tokens.is_signed", noted)
    return seen


async def flood(door: Door, forged: list[str]) -> list[int]:
    return [answer.status for answer in await asyncio.gather(*map(door.ask, forged))]


@pytest.mark.proves("Forged tokens keep the gateway busy")
@pytest.mark.parametrize("kid", ["one", None])
async def test_a_flood_of_forged_tokens_is_verified_a_few_times(
    door: Door, verified: list[str], kid: str | None
) -> None:
    """
    Forged tokens arrive at the same moment, with a key id or without one at a provider with a hundred keys.
    Verification runs off the event loop. A token that was valid before still works. A new valid token waits.
    """
    one = door.provider.key
    door.provider.published = [one, *[Key(f"k{number}", "ES256") for number in range(99)]]
    good, later = door.provider.access_token(), door.provider.access_token(sid="another")
    assert 200 == (await door.ask(good)).status
    verified.clear()
    forger = Key(kid, "RS256" if kid else "ES256")
    forged = [
        forger.token(door.provider.access_claims(jti=str(number)), typ="at+jwt") for number in range(FLOOD)
    ]
    statuses = await flood(door, forged)
    assert {401, 429} == set(statuses)
    assert GUESSES == statuses.count(401)
    # Each guess is verified once. The first is verified again after the provider's keys were fetched.
    assert GUESSES <= len(verified) <= (1 if kid else MAX_TRIES) * (GUESSES + 1)
    assert threading.main_thread().name not in verified
    answers = [await door.ask(token) for token in (good, later)]
    assert [200, 429] == [answer.status for answer in answers]
    door.clock.move(float(answers[1].headers["Retry-After"]))
    assert 200 == (await door.ask(later)).status


@pytest.mark.parametrize(
    "claims", [{"iss": "https://evil.example"}, {"aud": "another"}, {"exp": 1_700_000_000}]
)
async def test_a_token_for_something_else_is_not_verified(
    door: Door, verified: list[str], claims: dict[str, Any]
) -> None:
    """A token with wrong claims is refused before its signature is verified, and counts as a guess."""
    forged = [door.provider.access_token(jti=str(number), **claims) for number in range(FLOOD)]
    statuses = await flood(door, forged)
    assert statuses.count(401) == GUESSES
    assert verified == []
    assert FLOOD - GUESSES == statuses.count(429)


async def test_a_token_is_verified_once_while_the_keys_hold(door: Door, verified: list[str]) -> None:
    token = door.provider.access_token()
    assert [200] * 5 == [(await door.ask(token)).status for _ in range(5)]
    assert 1 == len(verified)


@pytest.mark.proves("A refresh token opens the tools of assistants")
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_only_access_tokens_open_the_tools(door: Door, kind: dict[str, Any]) -> None:
    """A refresh token cannot open the tools, because it is only for the provider."""
    answer = await door.ask(door.provider.access_token_of(kind))
    assert answer.status == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "named", [{"typ": "Bearer"}, {"token_type": "Bearer"}, {"token_use": "access"}], ids=str
)
async def test_providers_name_access_tokens_in_their_own_words(door: Door, named: dict[str, Any]) -> None:
    assert 200 == (await door.ask(door.provider.access_token_of(named))).status


@pytest.mark.proves("Forged tokens keep the gateway busy")
async def test_forged_logout_tokens_are_limited(door: Door, verified: list[str]) -> None:
    """
    Forged tokens are verified off the event loop, but a provider that ends many sessions at once is not limited.
    """
    forger = Key("one")
    forged, count = [], SHARED_BURST + 40
    door.provider.key, real = forger, door.provider.key
    forged = [door.provider.logout_token() for _ in range(count)]
    door.provider.key = real

    async def send(token: str) -> int:
        path = "/console/api/oidc-logout"
        body = f"logout_token={token}".encode()
        form = "application/x-www-form-urlencoded"
        return (await door.serving.send(path, body, form, key=None)).status

    assert [200] * 50 == await asyncio.gather(*(send(door.provider.logout_token()) for _ in range(50)))
    verified.clear()
    other = [send(door.provider.logout_token(iss="https://evil.example")) for _ in range(20)]
    assert await asyncio.gather(*other) == [400] * 20
    assert verified == []
    statuses = [await send(token) for token in forged]
    assert SHARED_BURST - 20 == statuses.count(400) <= len(verified) <= SHARED_BURST - 20 + 1
    assert 60 == statuses.count(429)
    assert threading.main_thread().name not in verified
