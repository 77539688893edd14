"""The HTTP API reference as Markdown, from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.http.openapi import document
from gateway.service.addresses.table import ADDRESSES
from gateway.service.mounts import OPERATOR_API

_HEAD = """# HTTP API

Every address of Tollhouse. `/openapi.json` of a running Tollhouse also describes the bodies of requests and responses.

- A call needs a scope of the API key. On the operator side it needs a
  [permission set](../roles.md#permission-sets).
- The header `Authorization` contains only the key, without a scheme.
- An error is `{"error": {"type": "...", "message": "..."}}`. The message says what to do.

If an address lists the header `Idempotency-Key`, a request may be repeated safely. The same body under the same key
gets the first response again and changes nothing. Another body under that key gets 422 `idempotency_key_reused`, and
nothing of it is stored. Bodies are compared after decompression. A key belongs to one API key and path. It is
remembered for `spool.duplicate_window` and within `spool.duplicate_ids`, across restarts and by every gateway. All
other addresses, including those for operators, ignore the header.
"""
_AREAS = (("For senders and key holders", False), ("For operators", True))


def page() -> str:
    """Return the page: addresses for senders, then for operators, each by path."""
    return _HEAD + "".join(_area(title, operators) for title, operators in _AREAS)


def _area(title: str, operators: bool) -> str:
    text = f"\n## {title}\n"
    for path, operations in document(ADDRESSES, version="")["paths"].items():
        if path.startswith(OPERATOR_API) == operators:
            text += "".join(_operation(path, method, found) for method, found in operations.items())
    return text


def _operation(path: str, method: str, found: Mapping[str, Any]) -> str:
    return "\n".join([f"\n### {method.upper()} {path}", "", *_lines(found), ""])


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['summary']}. {found.get('description', '')}".rstrip()
    yield ""
    keys = sorted({name for way in found["security"] for name in way})
    if keys:
        yield f"- identified by: {', '.join(keys)}"
    needed = sorted({word for way in found["security"] for words in way.values() for word in words})
    if needed:
        yield f"- needs: {', '.join(f'`{word}`' for word in needed)}"
    for place in ("path", "query", "header"):
        parameters = [_parameter(each) for each in found["parameters"] if each["in"] == place]
        if parameters:
            yield f"- in the {place}: {', '.join(parameters)}"
    body = found.get("requestBody")
    if body:
        yield f"- body: {', '.join(_content(body['content']))}"
    for status, answer in found["responses"].items():
        if status.startswith("2"):
            yield f"- {status}: {', '.join(_content(answer.get('content', {}))) or 'no body'}"
    refused = [status for status in found["responses"] if not status.startswith("2")]
    if refused:
        yield f"- otherwise: {', '.join(refused)}"


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    words = schema.get("items", schema).get("enum")
    shown = f"`{parameter['name']}`"
    return f"{shown} ({', '.join(map(str, words))})" if words else shown


def _content(content: Mapping[str, Any]) -> Iterator[str]:
    for media, held in content.items():
        reference = held["schema"].get("$ref")
        yield f"`{media}`" + (f" ({reference.rpartition('/')[2]})" if reference else "")
