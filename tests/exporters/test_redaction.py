"""After redaction, the message of a destination contains no form of a secret."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from exporters.kafka.connection import translate_errors
from exporters.redaction import redact_secrets, secrets_in_query
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

ADDRESS = "https://hooks.example.com/services/T024BE7LD/B01ABCDEF/x%2Fyz-Qw3rtyUiop?sig=a%2Bb_c4d5e6f7&v=1"


@pytest.mark.proves("A secret appears in a log, an answer or an upstream's error")
@pytest.mark.parametrize(
    "said",
    [
        ADDRESS,
        "Cannot POST /services/T024BE7LD/B01ABCDEF/x%2Fyz-Qw3rtyUiop",
        "no hook x/yz-Qw3rtyUiop of T024BE7LD",
        '{"path": "\\/services\\/T024BE7LD\\/B01ABCDEF\\/x%2Fyz-Qw3rtyUiop"}',
        "bad signature a+b_c4d5e6f7",
        "bad signature a%2Bb_c4d5e6f7",
        "services%2FT024BE7LD%2FB01ABCDEF%2Fx%252Fyz-Qw3rtyUiop",
    ],
)
def test_no_part_of_a_secret_address_stays(said: str) -> None:
    shown = redact_secrets(said, [ADDRESS])
    for part in ("T024BE7LD", "B01ABCDEF", "Qw3rtyUiop", "c4d5e6f7"):
        assert part not in shown


def test_what_is_no_secret_stays() -> None:
    """The host and short parts of an address stay in the message, because they help to find the mistake."""
    assert "404 at hooks.example.com: v=1" == redact_secrets("404 at hooks.example.com: v=1", [ADDRESS])


@pytest.mark.parametrize(
    ("secret", "said", "shown"),
    [
        ("Bearer th_1234", "unknown token th_1234", "unknown token [key]"),
        (f"Basic {base64.b64encode(b'ada:horse').decode()}", "ada has not horse", "ada has not [key]"),
        ("a b c", "a b c is not b", "[key] is not b"),
        ("", "nothing", "nothing"),
        ("a/b+c=", "a%2Fb%2Bc%3D is refused", "[key] is refused"),
    ],
)
def test_a_secret_is_found_in_every_spelling(secret: str, said: str, shown: str) -> None:
    assert shown == redact_secrets(said, [secret])


def test_a_secret_that_begins_like_another_leaves_no_rest() -> None:
    assert "[key] and [key]" == redact_secrets("key-123456 and key-1", ["key-1", "key-123456"])


def test_values_of_a_query_are_secret_where_the_address_is_none() -> None:
    assert ["s3cret-token"] == list(
        secrets_in_query("https://example.com/hook/long-path?key=s3cret-token&v=2")
    )


def test_words_are_one_line_of_visible_marks() -> None:
    """A destination's message cannot control a terminal or mislead a reader of the log."""
    assert "a b c d e" == redact_secrets("a\x1b\n\u2028b\u202ec\x9bd\u200be")


def test_a_broker_that_repeats_the_password_does_not_bring_it_into_our_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("ada\nc0rrect-horse\n")
    settings = DestinationSettings(name="stream", type="kafka", url="127.0.0.1:1", secret_file=file)
    secret = SecretSource("destination stream", file=file, most_lines=3)
    with pytest.raises(Exception, match=r"ada.*\[key\]") as error, translate_errors(settings, secret):
        raise OSError("ada may not sign in with c0rrect-horse")
    assert "horse" not in str(error.value)
