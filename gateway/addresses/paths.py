"""Where the operator's side is mounted, for those who need no more of the table."""

from __future__ import annotations

CONSOLE = "/console"
OPERATOR_API = "/console/api"  # over HTTP and on the operator socket
