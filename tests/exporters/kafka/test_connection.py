"""AWS keys from the services of a machine, a container or a pod, which these tests simulate."""

from __future__ import annotations

import ast
import inspect
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from aiokafka.admin import AIOKafkaAdminClient

from exporters.errors import Misconfigured, Retryable
from exporters.kafka import connection, exporter, recount
from exporters.kafka.connection import AwsKeyProvider, client_options, start_client
from exporters.settings import DestinationSettings
from spool.clock import SystemClock
from tests.integration.lake.identity.test_identities import AWS_TOKEN, ROLE, Platform
from tests.moved_clock import MovedClock

SETTINGS = DestinationSettings(
    name="stream", type="kafka", url="b:9098", sasl="aws-msk-iam", region="eu-west-1"
)
HOUR_S = 3600


@asynccontextmanager
async def served(platform: Platform) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", platform.answer)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.mark.parametrize("who", ["machine", "pod", "role"])
async def test_each_service_gives_keys(who: str, tmp_path: Path) -> None:
    """
    Each service returns keys with their session and expiry. A pod, and a role with a web identity, exchange
    the token in a file for keys.
    """
    (tmp_path / "token").write_text("a-token\n")
    file = str(tmp_path / "token")
    platform = Platform()
    async with served(platform) as url:
        environ = {
            "machine": {"AWS_METADATA_ENDPOINT": url},
            "pod": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file},
            "role": {
                "AWS_ENDPOINT_URL_STS": f"{url}/sts", "AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": file,
            },
        }[who]  # fmt: skip
        keys = await AwsKeyProvider(SETTINGS, environ=environ).current_keys()
    assert (f"of-{who}", "secret", AWS_TOKEN) == keys[:3]
    assert SystemClock().now() + HOUR_S - 120 < keys.expires_at < SystemClock().now() + HOUR_S + 120
    told = platform.asked[-1][1]
    if who == "machine":
        assert "imds-session" == told["x-aws-ec2-metadata-token"]
    elif who == "pod":
        assert "a-token" == told["authorization"]
    else:
        assert told["RoleArn"] == ROLE
        assert told["WebIdentityToken"] == "a-token"


async def test_keys_are_fetched_again_before_they_expire() -> None:
    """Many connections share one request. Keys are fetched again five minutes before they expire."""
    platform, clock = Platform(), MovedClock(SystemClock().now())
    async with served(platform) as url:
        identity = AwsKeyProvider(SETTINGS, environ={"AWS_METADATA_ENDPOINT": url}, clock=clock)
        await identity.current_keys()
        asked = len(platform.asked)
        clock.move(HOUR_S - 400)
        await identity.current_keys()
        assert asked == len(platform.asked)
        clock.move(200)
        await identity.current_keys()
        assert 2 * asked == len(platform.asked)


async def test_variables_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in environment variables sign a connection's token, and no service is called."""
    for name, value in (
        ("ACCESS_KEY_ID", "own"),
        ("SECRET_ACCESS_KEY", "secret"),
        ("SESSION_TOKEN", "session"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    token = await client_options(SETTINGS, None)["sasl_oauth_token_provider"].token()
    address = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert "Credential=own%2F" in address and "Security-Token=session" in address


@pytest.mark.parametrize(
    ("refuses", "error"), [({"/latest/": 404}, Misconfigured), ({"/latest/": 503}, Retryable)]
)
async def test_a_machine_without_a_role_parks(refuses: dict[str, int], error: type[Exception]) -> None:
    """A machine without an identity gets a clear error. A busy service is retried."""
    async with served(Platform(refuses=refuses)) as url:
        with pytest.raises(error, match=r"503|AWS provides no keys to this machine"):
            await AwsKeyProvider(SETTINGS, environ={"AWS_METADATA_ENDPOINT": url}).current_keys()


async def test_token_is_sent_only_to_addresses_with_tls(tmp_path: Path) -> None:
    """The pod's token is sent only to addresses with TLS."""
    (tmp_path / "token").write_text("a-token")
    environ = {
        "AWS_ENDPOINT_URL_STS": "http://sts.example.com",
        "AWS_ROLE_ARN": ROLE,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
    }
    with pytest.raises(Misconfigured, match="does not begin with https://"):
        await AwsKeyProvider(SETTINGS, environ=environ).current_keys()


def test_the_library_has_each_method_that_is_called() -> None:
    """The types of the library are unknown to the type checker, so a wrong name would be seen only at a broker."""
    kinds = {"reader": AIOKafkaConsumer, "producer": AIOKafkaProducer, "admin": AIOKafkaAdminClient}
    called = {
        (node.func.value.id, node.func.attr)
        for module in (connection, exporter, recount)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    }
    used = [(kinds[name], method) for name, method in called if name in kinds]
    assert len(used) > 10
    assert [] == [(kind, method) for kind, method in used if not hasattr(kind, method)]


@pytest.mark.parametrize(
    ("mechanism", "raised"),
    [("OAUTHBEARER", errors.AuthenticationFailedError), ("PLAIN", AssertionError), (None, AssertionError)],
)
async def test_only_with_a_token_is_a_failed_check_of_the_library_a_refusal(
    mechanism: str | None, raised: type[Exception]
) -> None:
    """Brokers answer a rejected token with an empty list. Otherwise, a failed check is a defect."""

    class Client:
        async def start(self) -> None:
            raise AssertionError

    with pytest.raises(raised):
        await start_client(Client(), {"sasl_mechanism": mechanism} if mechanism else {})
