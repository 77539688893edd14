"""The numbers and digests of schemas. A build opens its own schema, or an earlier version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

FIRST: Final = 17  # lower numbers are from versions before the first release
_COMMENT: Final = re.compile(r"--[^\n]*")


def schema_digests(versions: Sequence[str]) -> list[str]:
    """Return a digest of the schema after each version, without comments and white space."""
    found, seen = [], sha256()
    for statements in versions:
        seen.update(" ".join(_COMMENT.sub("", statements).split()).encode() + b"\0")
        found.append(seen.hexdigest()[:16])
    return found
