"""A person signs in with an OpenID provider, by going to the provider's site and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from spool.clock import SystemClock
from tests.acceptance.conftest import Tollhouse
from tests.browser.console import WIDE, Console
from tests.free_ports import free_port
from tests.openid_provider import CLIENT, SECRET, OpenIdProvider, openid_provider_beside

CONFIG = """
[server]
listen = "127.0.0.1:{port}"
grpc_listen = ""
[oidc]
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "secret"
console = "http://127.0.0.1:{port}/console/"
name = "Acme"
default_role = "admin"
"""


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with openid_provider_beside(SystemClock()) as provider:
        yield provider


@pytest.fixture
def house(tmp_path: Path, provider: OpenIdProvider) -> Iterator[Tollhouse]:
    (tmp_path / "secret").write_text(SECRET)
    tollhouse = Tollhouse(tmp_path, CONFIG.format(port=free_port(), issuer=provider.url, client=CLIENT))
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


def test_person_signs_in_and_out_at_the_provider(
    browser: Browser, house: Tollhouse, provider: OpenIdProvider
) -> None:
    """
    The sign-in button signs a person in at the provider, and the provider can sign the person out. Errors are shown
    with a remedy.
    """
    assert "" == house.json("check")["oidc"]["problem"]
    settings: dict[str, Any] = {"viewport": WIDE, "reduced_motion": "reduce"}
    with browser.new_context(**settings) as context:
        console = Console(context, house)
        console.expects("401")
        console.page.goto(f"{house.url}/console/")
        button = console.page.get_by_role("link", name="Sign in with Acme")
        expect(button).to_be_visible()
        assert [] == console.audit()
        button.click()
        expect(console.page.get_by_role("navigation", name="Pages", include_hidden=True)).to_be_attached()
        assert ("ada@example.com", "admin") == tuple(
            console.ask("/session")["session"][name] for name in ("actor", "role")
        )
        token: dict[str, Any] = {"logout_token": provider.logout_token()}
        assert {"ended": 1} == context.request.post(f"{house.url}/console/api/oidc-logout", form=token).json()
        provider.claims = {"email_verified": False}
        button.click()
        expect(console.page.get_by_role("alert")).to_contain_text("Verify it there")
        assert [] == console.wrong
