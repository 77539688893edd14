"""
Comparison of `/openapi.json` before and after a change of the code: `python -m tests.openapi_changes FILE`.

If the file does not exist, the command writes the document to it. If it exists, the command prints each
difference and exits with 1 if there is any. Descriptions of fields and the order of unordered lists are ignored.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.http.openapi import openapi_document
from gateway.service.addresses.table import ADDRESSES

_UNORDERED = ("anyOf", "enum", "required")


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Yield a line for each path at which the two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            place = f"{at}/{name}"
            if name not in after:
                yield f"- {place}: {json.dumps(before[name])}"
            elif name not in before:
                yield f"+ {place}: {json.dumps(after[name])}"
            else:
                yield from differences(before[name], after[name], place)
    elif before != after:
        yield f"! {at}: {json.dumps(before)} -> {json.dumps(after)}"


def comparable(value: Any, *, are_fields: bool = False) -> Any:
    """Return a document without the descriptions of fields, and with unordered lists sorted."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if not isinstance(value, dict):
        return value
    members = {name: comparable(each, are_fields=name == "properties") for name, each in value.items()}
    if are_fields:
        return {name: _wordless(each) for name, each in members.items()}
    return {
        name: sorted(each, key=_in_order) if name in _UNORDERED and isinstance(each, list) else each
        for name, each in members.items()
    }


def _in_order(each: Any) -> str:
    return json.dumps(each, sort_keys=True)


def _wordless(field: Any) -> Any:
    return (
        {name: each for name, each in field.items() if name != "description"}
        if isinstance(field, dict)
        else field
    )


if __name__ == "__main__":
    file, now = Path(sys.argv[1]), json.loads(json.dumps(openapi_document(ADDRESSES, version="")))
    if not file.exists():
        file.write_text(json.dumps(now, indent=1))
        sys.exit()
    found = list(differences(comparable(json.loads(file.read_text())), comparable(now)))
    sys.exit("\n".join(found) or None)
