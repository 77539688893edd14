"""
Removal of secrets from text of a remote server. Use `redact_secrets` before such text is stored, shown or logged.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from exporters.errors import Misconfigured
from exporters.secret_source import SecretSource

LONGEST_WORDS = 500
STRUCK_OUT: Final = "[key]"
# minimum characters; shorter parts of a secret address are ordinary words and are not removed
_LEAST_PART: Final = 8
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+")


def redact_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """
    Return one printable line of bounded length that contains none of the secrets.

    If a secret is an address, its path, the parts of its path and the values of its query are secret as well.
    If a secret is a header with a scheme such as `Bearer`, the text after the scheme is secret as well.
    """
    forms = {
        form for secret in secrets for part in _secret_parts(secret) for form in _url_and_json_encodings(part)
    }
    # longest secret first, because a secret may be a part of another secret
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, STRUCK_OUT)
    text = " ".join(_NOT_PRINTABLE.sub(" ", text).split())
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]}..."


def secrets_in_query(url: str) -> Iterator[str]:
    """Yield the values in the query of an address. Use it for an address whose other parts are not secret."""
    for _, value in parse_qsl(urlsplit(url).query):
        if len(value) >= _LEAST_PART:
            yield value


def secret_lines(source: SecretSource | None) -> list[str]:
    """Return the lines of a secret, or none if it cannot be read, because then it was not sent either."""
    try:
        return source.value().split("\n") if source else []
    except Misconfigured:
        return []


def _secret_parts(secret: str) -> Iterator[str]:
    if not secret:
        return
    yield secret
    if "://" in secret:
        yield from _url_parts_to_redact(secret)
        return
    scheme, _, credentials = secret.partition(" ")
    if not credentials or " " in credentials:
        return
    yield credentials
    if scheme.lower() == "basic":
        yield from _basic_password(credentials)


def _url_parts_to_redact(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    whole = f"{parts.path}?{parts.query}" if parts.query else parts.path
    query_values = [value for _, value in parse_qsl(parts.query)]
    for part in (whole, parts.path, parts.query, *parts.path.split("/"), *query_values):
        if len(part.strip("/")) >= _LEAST_PART:
            yield part.strip("/")


def _basic_password(credentials: str) -> Iterator[str]:
    try:
        password = base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return
    if password:
        yield password


def _url_and_json_encodings(part: str) -> Iterator[str]:
    yield from (part, unquote(part), quote(part), quote(part, safe=""), quote_plus(part))
    yield part.replace("/", "\\/")
