"""
Authentication of a gateway at a real broker: valid, wrong, missing and renewed certificates and passwords.
"""

from __future__ import annotations

import base64
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka.admin import NewTopic

from exporters.destinations.catalogue import TYPES, destination_secret
from exporters.probe import OK, REFUSED, Probe
from exporters.settings import DestinationSettings
from spool.clock import SystemClock
from spool.deliveries.values import PARKED
from tests.clients import environments
from tests.clients.kafka import broker as brokers
from tests.clients.kafka.broker import Broker
from tests.clients.kafka.test_kafka import found
from tests.exporters.spools import calls
from tests.free_ports import free_port
from tests.integration.certificates import Certificates
from tests.integration.lake.lakes import opened

pytestmark = [
    pytest.mark.clients,
    # the library may leave a refused connection unclosed
    pytest.mark.filterwarnings("ignore:(?s).*unclosed:pytest.PytestUnraisableExceptionWarning"),
]
# Listeners: `mutual` requires a client certificate, `signed` requires a user and a password, and `aws`
# requires a token that `SignedTokens` accepts.
PROPERTIES = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},MUTUAL://127.0.0.1:{mutual},SIGNED://127.0.0.1:{signed},AWS://127.0.0.1:{aws}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},MUTUAL://127.0.0.1:{mutual},SIGNED://127.0.0.1:{signed},AWS://127.0.0.1:{aws}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MUTUAL:SSL,SIGNED:SASL_SSL,AWS:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={directory}/server.both
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
listener.name.mutual.ssl.client.auth=required
listener.name.signed.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER
listener.name.aws.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.aws.oauthbearer.sasl.server.callback.handler.class=SignedTokens
"""
MODULES = {
    "scram-sha-512": "scram.ScramLoginModule required;",
    "scram-sha-256": "scram.ScramLoginModule required;",
    "plain": 'plain.PlainLoginModule required user_writer="secret";',
    "oauthbearer": "oauthbearer.OAuthBearerLoginModule required;",
}
USERS = [f"SCRAM-SHA-{bits}=[name=writer,password=secret]" for bits in (256, 512)]


@dataclass(frozen=True, kw_only=True)
class Secured:
    broker: Broker
    certificates: Certificates
    others: Certificates  # certificates of an authority that the broker does not know
    mutual: int
    signed: int
    aws: int

    def settings(self, **changes: Any) -> dict[str, Any]:
        certificates = self.certificates
        usual = {
            "type": "kafka",
            "url": f"127.0.0.1:{self.mutual}",
            "ca_file": certificates.path("ca.pem"),
            "tls_cert_file": certificates.path("client.pem"),
            "tls_key_file": certificates.path("client.key"),
        }
        return {**usual, **changes}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    java = environments.java("kafka")
    own, others = (Certificates(tmp_path_factory.mktemp(name)) for name in ("own", "others"))
    key, chain = own.path("server.key").read_text(), own.path("server.pem").read_text()
    own.path("server.both").write_text(key + chain)
    directory = tmp_path_factory.mktemp("broker")
    broker = Broker(java, directory, free_port(), users=USERS)
    mutual, signed, aws = free_port(), free_port(), free_port()
    signing = [
        f"listener.name.{name}.sasl.jaas.config=org.apache.kafka.common.security.{module}\n"
        for name, module in (
            *((f"signed.{mechanism}", module) for mechanism, module in MODULES.items()),
            ("aws.oauthbearer", MODULES["oauthbearer"]),
        )
    ]
    broker.more = "".join(signing) + PROPERTIES.format(
        plain=broker.port,
        controller=broker.controller,
        mutual=mutual,
        signed=signed,
        aws=aws,
        directory=own.path("ca.pem").parent,
    )
    with brokers.running(broker):
        yield Secured(broker=broker, certificates=own, others=others, mutual=mutual, signed=signed, aws=aws)


async def checked(settings: dict[str, Any]) -> Probe:
    made = DestinationSettings(name="lake", **settings)
    return await TYPES["kafka"].probe(made, destination_secret(made), SystemClock())


async def test_a_client_certificate_signs_in_and_one_that_is_exchanged_wakes_the_route(
    secured: Secured, tmp_path: Path
) -> None:
    """
    A certificate of another authority pauses the route and loses nothing. The right one takes effect
    without a restart.
    """
    await secured.broker.until_ready(*brokers.topics())
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(secured.others.path("client.pem"), cert)
    shutil.copy(secured.others.path("client.key"), key)
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 25))
        async with house.forwarding(**secured.settings(tls_cert_file=cert, tls_key_file=key)):
            state = await house.until(state=PARKED)
            assert state.reason is not None and "alert" in state.reason.lower(), state.reason
            shutil.copy(secured.certificates.path("client.key"), key)
            shutil.copy(secured.certificates.path("client.pem"), cert)
            await house.until(queued=0)
        assert {"delivered": 25} == await house.terms()
    assert Counter(range(1, 26)) == await found(secured.broker)
    assert OK == (await checked(secured.settings())).status


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tls_cert_file": None, "tls_key_file": None}, "alert bad certificate"),
        ({"ca_file": None}, "certificate verify failed"),
    ],
)
async def test_check_says_which_certificate_is_missing(
    secured: Secured, changes: dict[str, Any], words: str
) -> None:
    """The report names either the client certificate or the certificate of the broker's authority."""
    await secured.broker.until_ready()
    said = await checked(secured.settings(**changes))
    assert said.status == REFUSED, said
    assert words in (said.words or "").lower(), said


@pytest.mark.parametrize("sasl", ["plain", "scram-sha-256", "scram-sha-512"])
async def test_a_password_signs_in_under_tls_and_a_wrong_one_is_refused(
    secured: Secured, sasl: str, tmp_path: Path
) -> None:
    """
    A password signs in under TLS. After a wrong one, the error is the broker's message, and not that the
    broker is unreachable.
    """
    await secured.broker.until_ready(*brokers.topics())
    secret = tmp_path / "secret"
    settings = secured.settings(
        url=f"127.0.0.1:{secured.signed}",
        sasl=sasl,
        secret_file=secret,
        tls_cert_file=None,
        tls_key_file=None,
    )
    secret.write_text("writer\nsecret\n")
    assert OK == (await checked(settings)).status
    secret.write_text("writer\nwrong\n")
    said = await checked(settings)
    assert said.status == REFUSED, said
    assert "authentication" in (said.words or "").lower(), said
    assert "wrong" not in (said.words or "")


async def test_a_token_signs_in_and_a_renewed_file_wakes_the_route(secured: Secured, tmp_path: Path) -> None:
    """An expired token pauses the route until the file with the token is renewed."""
    await secured.broker.until_ready(*brokers.topics())
    file = tmp_path / "token"
    settings = secured.settings(
        url=f"127.0.0.1:{secured.signed}",
        sasl="oauthbearer",
        identity_token_file=file,
        tls_cert_file=None,
        tls_key_file=None,
        topic="tokens.{topic}",
    )
    names = ("tokens.ai-telemetry", "tokens.progress")
    await secured.broker.until_ready(*(NewTopic(name, 1, 1) for name in names))
    file.write_text(token(ends_in_s=-3600))
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 5))
        async with house.forwarding(**settings):
            state = await house.until(state=PARKED)
            assert state.reason is not None and "do not take the token" in state.reason
            file.write_text(token(ends_in_s=3600))
            await house.until(queued=0)
        assert {"delivered": 5} == await house.terms()


async def test_keys_of_aws_sign_in_and_renewed_ones_wake_the_route(secured: Secured, tmp_path: Path) -> None:
    """
    A broker that recomputes the signature accepts it, also with a session token. The signature of another key
    pauses the route.
    """
    keys = tmp_path / "keys"
    settings = secured.settings(
        url=f"127.0.0.1:{secured.aws}",
        sasl="aws-msk-iam",
        region="eu-west-1",
        secret_file=keys,
        tls_cert_file=None,
        tls_key_file=None,
        topic="msk.{topic}",
    )
    names = ("msk.ai-telemetry", "msk.progress")
    await secured.broker.until_ready(*(NewTopic(name, 1, 1) for name in names))
    keys.write_text("AKIDEXAMPLE\nanother\n")
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 5))
        async with house.forwarding(**settings):
            state = await house.until(state=PARKED)
            assert state.reason is not None and "do not take the token" in state.reason
            keys.write_text("AKIDEXAMPLE\nsecret/of+a+key\n")
            await house.until(queued=0)
            keys.write_text("AKIDEXAMPLE\nsecret/of+a+key\nsession/token+=\n")
            await house.add(calls(6, 10))
            await house.until(queued=0)
        assert {"delivered": 10} == await house.terms()


def token(*, ends_in_s: int) -> str:
    """Make an unsigned token, which this broker accepts."""
    now = int(time.time())
    claims = {"sub": "writer", "iat": now - 7200, "exp": now + ends_in_s}
    parts = (base64.urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return ".".join([*(part.decode() for part in parts), ""])
