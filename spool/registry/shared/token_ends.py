"""Tokens of a provider that end before their time: of which sign-ins, and of whom those that were issued by then."""

from __future__ import annotations

import json
from hashlib import blake2b

from spool.registry.operators import MAX_TOKEN_LIFE_S
from spool.registry.shared.documents import DocumentRows

KIND = "token_end"
_SIGN_IN, _PERSON, _NAMELESS = "sid", "sub", "sub without sid"


def end_sign_in(
    rows: DocumentRows, issuer: str, sign_in: str, *, subject: str | None, by: float, now: float
) -> None:
    """
    End every token of one sign-in at the provider, and of its person those that were issued by then and
    name no sign-in.
    """
    _put(rows, _id(issuer, _SIGN_IN, sign_in), {"by": by}, now)
    if subject is not None:
        _put(rows, _id(issuer, _NAMELESS, subject), {"by": by}, now)


def end_person(rows: DocumentRows, issuer: str, subject: str, *, by: float, now: float) -> None:
    """End every token of a person that was issued by then."""
    _put(rows, _id(issuer, _PERSON, subject), {"by": by}, now)


def has_ended(rows: DocumentRows, issuer: str, subject: str, sign_in: str, *, issued_at: float) -> bool:
    """True if a token was ended. `sign_in` is empty where it does not name one."""
    if sign_in and rows.document(KIND, _id(issuer, _SIGN_IN, sign_in)) is not None:
        return True
    kinds = (_PERSON,) if sign_in else (_PERSON, _NAMELESS)
    ended = [rows.document(KIND, _id(issuer, kind, subject)) for kind in kinds]
    return any(each is not None and issued_at <= each["by"] for each in ended)


def _put(rows: DocumentRows, id: str, body: dict[str, float], now: float) -> None:
    """Keep it as long as a token may live, and forget those that no token needs any more."""
    for old, kept in rows.documents(KIND).items():
        if kept["until"] <= now:
            rows.delete_document(KIND, old)
    rows.put_document(KIND, id, {**body, "until": now + MAX_TOKEN_LIFE_S})


def _id(*parts: str) -> str:
    """Short, whatever a provider writes."""
    return blake2b(json.dumps(parts).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
