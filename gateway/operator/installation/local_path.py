"""A path on the server's machine that an operator call names: for who may open the operator socket alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.errors import Refusal
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid


def local_path(request: OperatorRequest[Any, Any], field: str, given: str, *, elsewhere: str) -> Path:
    """Refusal 403, in the words `elsewhere`, for who did not come over the operator socket."""
    if request.session is not None:
        raise Refusal(403, "socket_only", elsewhere)
    if not Path(given).is_absolute():
        raise Invalid(f"{field} must be an absolute path")
    return Path(given)
