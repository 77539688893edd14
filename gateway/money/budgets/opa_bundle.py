"""
A table of verdicts as a bundle for Open Policy Agent (OPA).

OPA accepts no Ed25519 signature of a bundle, so the bundle has its own key for ES256. All gateways of an
installation return the same bytes, because the signature has no random part (RFC 6979) and the archive
contains no times.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gateway.devices.agent.policy.signatures import WebTokenSigningKey

# media type of a bundle; it lets OPA use long polling for changes
MEDIA_TYPE = "application/vnd.openpolicyagent.bundles"
ROOT = "tollhouse"  # path of the verdict table in OPA's data
KEY_ID = "tollhouse"


def build_bundle(table: bytes, version: int, key: WebTokenSigningKey) -> bytes:
    """Build the OPA bundle of a table of verdicts, which is compact JSON with sorted names."""
    files = {
        ".manifest": msgspec.json.encode({"revision": str(version), "roots": [ROOT]}),
        "data.json": _escape_like_go(b'{"%s":%s}' % (ROOT.encode(), table)),
    }
    hashed = [
        {"algorithm": "SHA-256", "hash": sha256(data).hexdigest(), "name": name}
        for name, data in files.items()
    ]
    token = key.sign_web_token(msgspec.json.encode({"files": hashed}), KEY_ID)
    return _make_archive({".signatures.json": msgspec.json.encode({"signatures": [token]}), **files})


def _escape_like_go(json: bytes) -> bytes:
    """
    Escape the two characters that Go's JSON encoder escapes. OPA (written in Go) decodes and encodes the
    table of verdicts again before it checks its hash.
    """
    return json.replace("\u2028".encode(), rb"\u2028").replace("\u2029".encode(), rb"\u2029")


def _make_archive(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(written.getvalue(), compresslevel=6, mtime=0)
