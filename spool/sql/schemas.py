"""
Numbers and digests of schemas. A build opens a storage only if both are its own, or those of a version before its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

FIRST: Final = 17  # the first version; builds before the first release used the numbers below it
_COMMENT: Final = re.compile(r"--[^\n]*")


def schema_digests(versions: Sequence[str]) -> list[str]:
    """Return the digest of the schema after each version: of its statements without comments and white space."""
    found, seen = [], sha256()
    for statements in versions:
        seen.update(" ".join(_COMMENT.sub("", statements).split()).encode() + b"\0")
        found.append(seen.hexdigest()[:16])
    return found
