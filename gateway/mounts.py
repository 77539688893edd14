"""Where the operator's side is mounted, on every listener and on the operator socket."""

from __future__ import annotations

CONSOLE = "/console"
OPERATOR_API = "/console/api"  # over HTTP and on the operator socket
