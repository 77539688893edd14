"""Tokens for Amazon MSK equal those of AWS's signer, and errors in the file of keys are reported."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from exporters.errors import Misconfigured
from exporters.kafka.connection import client_options, signed_msk_token
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


# `aws-msk-iam-sasl-signer-python` 1.0.2 has these results for the same second.
@pytest.mark.parametrize(
    ("session", "signature"),
    [
        ("", "51ba72996423e9b2704fb5b8919a3061185337b0e9ebfbbdef592a7066e805c2"),
        ("session/token+=", "ae0caa2f2378bbe5f0e8b825ce81275b25c2008cb98582f8e9ce05e0b1ef8d1e"),
    ],
)
def test_a_token_is_the_address_that_the_signer_of_aws_makes(session: str, signature: str) -> None:
    """A token equals AWS's in every part of the address, with and without temporary keys."""
    token = signed_msk_token(KEY, SECRET, session, region="eu-central-1", now=1_790_000_000.9)
    address = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    expected = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/20260921/eu-central-1/kafka-cluster/aws4_request",
        "X-Amz-Date": "20260921T141320Z",
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": signature,
        "User-Agent": "tollhouse",
    }
    if session:
        expected["X-Amz-Security-Token"] = session
    assert expected == {name: value for name, [value] in parse_qs(address.query).items()}
    assert ("https", "kafka.eu-central-1.amazonaws.com", "/") == address[:3]
    assert "=" not in token and SECRET not in token


async def test_each_connection_signs_with_the_keys_of_the_file_as_they_are_then(tmp_path: Path) -> None:
    """Another program renews temporary keys by rewriting the file, so each connection reads it again."""
    file = tmp_path / "keys"
    file.write_text("one\nsecret\n")
    settings = DestinationSettings(
        name="stream", type="kafka", url="b:9098", sasl="aws-msk-iam", region="eu-west-1", secret_file=file
    )
    options = client_options(settings, SecretSource("stream", file=file, most_lines=3))
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "OAUTHBEARER"
    for id in ("one", "another"):
        file.write_text(f"{id}\nsecret\nsession\n")
        token = await options["sasl_oauth_token_provider"].token()
        address = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        assert f"Credential={id}%2F" in address and "Security-Token=session" in address


@pytest.mark.parametrize(
    ("sasl", "text", "words"),
    [
        ("aws-msk-iam", "one", "the key id, the secret key"),
        ("plain", "user", "a user and a password"),
        ("scram-sha-512", "user\npassword\nmore", "a user and a password"),
    ],
)
def test_malformed_key_file_is_reported_without_its_content(
    sasl: str, text: str, words: str, tmp_path: Path
) -> None:
    """If the file of keys has unexpected lines, the error message contains nothing of the secret file."""
    file = tmp_path / "keys"
    file.write_text(text)
    settings = DestinationSettings(name="stream", type="kafka", url="b:9098", sasl=sasl, secret_file=file)
    with pytest.raises(Misconfigured, match=words) as told:
        client_options(settings, SecretSource("stream", file=file, most_lines=3))
    assert "password\n" not in str(told.value) and "one" not in str(told.value)
