"""
The header by which a sender tells its requests apart: a key stands for one body.

The same body again is answered as the first time and changes nothing; another body is refused, and nothing of it is
kept. Keys are those of one API key and path, and are known as long as ids of calls are (spool.duplicate_window).
"""

from __future__ import annotations

from typing import Any

from gateway.http.requests import KeyRequest
from spool.identity import Identity, RequestNames, no_identity, of_item, of_request

IDEMPOTENCY_KEY = "Idempotency-Key"


def names_of(request: KeyRequest[Any, bytes], *more: bytes) -> RequestNames | None:
    """
    Return the names of a request by its Idempotency-Key; None without the header. `more` is compared together
    with the body.
    """
    key = request.http.headers.get(IDEMPOTENCY_KEY)
    if not key:
        return None
    return of_request(request.bearer.name, request.http.path, key, request.body, *more)


def identity_of(names: RequestNames | None, place: int, given: bytes | None) -> Identity:
    """Identify an item of a request by the id that another Tollhouse gave it, else by its place."""
    if given is not None:
        return Identity(given)
    if names is None:
        return no_identity()
    return Identity(of_item(names, place))
