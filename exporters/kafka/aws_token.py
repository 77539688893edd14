"""
The token that a cluster of Amazon MSK takes: an address of its service, signed with the keys of an AWS identity
(Signature Version 4 in the query), in base64. Pure.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from functools import reduce
from hashlib import sha256
from typing import Final
from urllib.parse import quote, urlencode

ENDS_S: Final = 900  # the longest that is taken
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"


def aws_token(key_id: str, secret: str, session: str, *, region: str, now: float) -> str:
    """Sign the right to connect; `session` is that of temporary keys, else empty."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    host, scope = f"kafka.{region}.amazonaws.com", f"{at[:8]}/{region}/{_SERVICE}/aws4_request"
    asked = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{key_id}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": str(ENDS_S),
        "X-Amz-SignedHeaders": "host",
    }
    if session:
        asked["X-Amz-Security-Token"] = session
    query = urlencode(sorted(asked.items()), quote_via=quote, safe="")
    request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{sha256().hexdigest()}"
    text = f"{_ALGORITHM}\n{at}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = reduce(_signed, [*scope.split("/"), text], f"AWS4{secret}".encode()).hex()
    address = f"https://{host}/?{query}&X-Amz-Signature={signature}&User-Agent=tollhouse"
    return urlsafe_b64encode(address.encode()).rstrip(b"=").decode()


def _signed(key: bytes, words: str) -> bytes:
    return hmac.digest(key, words.encode(), "sha256")
