"""Where the operator's side is mounted, on every listener and on the operator socket."""

from __future__ import annotations

CONSOLE = "/console"
OPERATOR_API = "/console/api"  # over HTTP and on the operator socket


def console_link(url: str, secret: str) -> str:
    """The secret stands in the fragment, which no browser sends and no log keeps."""
    return f"{url}#link={secret}"
