"""Sign-in with a third-party provider: discovery, tokens, refusals and keys."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from gateway.configuration.sections import OidcSettings
from gateway.people.authentication.oidc.problems import SignInProblem, TokenRefused
from gateway.people.authentication.oidc.provider import AGAIN_S, IdentityProvider
from gateway.people.authentication.oidc.sign_ins import ProviderSignIns
from gateway.people.authentication.oidc.tokens import TokenRequirements, check_id_token
from spool.registry.operators import SignInSession
from tests.clients import environments
from tests.free_ports import free_port
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.moved_clock import MovedClock

pytestmark = pytest.mark.clients

BACK = "http://127.0.0.1:4318/console/"


class RunningProvider:
    """The provider's process. Each start has new keys."""

    def __init__(self) -> None:
        self._python = environments.python("openid")
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        ada = {"sub": "ada", "email": ADA, "email_verified": True, "groups": ["finops"]}
        words = ["-m", "oidc_provider_mock", "--port", str(self._port), "--user-claims", json.dumps(ada)]
        self._process = subprocess.Popen([str(self._python), *words], stderr=subprocess.DEVNULL)
        async with aiohttp.ClientSession() as session:
            while True:
                assert self._process.poll() is None
                try:
                    async with session.get(f"{self.url}/jwks"):
                        return
                except aiohttp.ClientConnectionError:
                    time.sleep(0.05)

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def provider() -> Iterator[RunningProvider]:
    provider = RunningProvider()
    yield provider
    provider.stop()


@pytest_asyncio.fixture
async def house(tmp_path: Path, provider: RunningProvider) -> AsyncIterator[OperatorServer]:
    await provider.start()
    (tmp_path / "secret").write_text("any-secret")
    async with operator_server(tmp_path, clock=MovedClock(time.time())) as server:
        settings = settings_of(provider, tmp_path, "tollhouse")
        server.services.people.oidc = ProviderSignIns(settings, server.registry, server.clock)
        yield server
        await server.services.people.oidc.close()


def settings_of(provider: RunningProvider, directory: Path, client: str) -> OidcSettings:
    return OidcSettings(
        issuer=provider.url,
        client_id=client,
        client_secret_file=directory / "secret",
        console=BACK,
        roles={"finops": "operator"},
    )


async def brought_from(address: str) -> dict[str, str]:
    """
    Return the parameters with which a browser returns from `address` after its person has signed in there.
    """
    url = URL(address, encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data={"sub": "ada"}, allow_redirects=False) as answer,
    ):
        assert 302 == answer.status, await answer.text()
        return dict(URL(answer.headers["Location"]).query)


async def signed_in(house: OperatorServer, **changes: str) -> SignInSession:
    assert house.services.people.oidc
    address, browser = await house.services.people.oidc.begin_sign_in(address_group="here")
    answer = {**await brought_from(address), **changes}
    _, session = await house.services.people.oidc.finish(answer, browser=browser, address="here")
    return session


async def test_a_person_signs_in(house: OperatorServer) -> None:
    """Claims and groups come from the provider's ID token. The code works once."""
    assert house.services.people.oidc
    address, browser = await house.services.people.oidc.begin_sign_in(address_group="here")
    answer = await brought_from(address)
    _, session = await house.services.people.oidc.finish(answer, browser=browser, address="here")
    assert session.actor == ADA
    assert session.role == "operator"
    assert session.subject == "ada"
    with pytest.raises(SignInProblem) as refused:
        await signed_in(house, code=answer["code"])
    assert "code" == refused.value.word


@pytest.mark.parametrize("seconds", [7200, -7200])
async def test_clocks_that_differ_too_much(house: OperatorServer, seconds: int) -> None:
    """
    With a clock two hours ahead, the provider's token has expired. With a clock two hours behind, it is from the
    future. Both are refused.
    """
    house.clock.move(seconds)
    with pytest.raises(SignInProblem) as refused:
        await signed_in(house)
    assert "token" == refused.value.word


async def test_its_keys_change(house: OperatorServer, provider: RunningProvider) -> None:
    """If the provider changes its signing key, Tollhouse finds the new key without a restart."""
    await signed_in(house)
    provider.stop()
    await provider.start()
    house.clock.move(AGAIN_S + 1)
    assert ADA == (await signed_in(house)).actor


async def test_a_token_for_another_client(
    house: OperatorServer, provider: RunningProvider, tmp_path: Path
) -> None:
    """A token with a valid signature but another client as its audience is refused."""
    other = IdentityProvider(settings_of(provider, tmp_path, "another"), BACK, house.clock)
    code = (await brought_from(await other.sign_in_address(state="s", nonce="n", verifier="v" * 43)))["code"]
    claims = (await other.exchange_code(code, verifier="v" * 43, nonce="n")).claims
    await other.close()
    assert claims
    expected = TokenRequirements(issuer=provider.url, client_id="tollhouse", now=house.clock.now(), skew_s=60)
    with pytest.raises(TokenRefused, match="another client"):
        check_id_token(claims, expected, nonce="n")


async def test_who_may_not_go_on(house: OperatorServer, provider: RunningProvider) -> None:
    """
    A session continues while the provider refreshes its tokens, and ends when the provider revokes them.
    """
    assert house.services.people.oidc
    session = await signed_in(house)
    assert session.refreshes
    house.clock.move(900)
    await house.services.people.oidc.end_unconfirmed_sessions()
    assert [session.id] == [one.id for one in await house.registry.operators.live_sessions()]
    async with (
        aiohttp.ClientSession() as admin,
        admin.post(f"{provider.url}/users/ada/revoke-tokens") as answer,
    ):
        assert 204 == answer.status
    house.clock.move(900)
    await house.services.people.oidc.end_unconfirmed_sessions()
    assert [] == await house.registry.operators.live_sessions()
