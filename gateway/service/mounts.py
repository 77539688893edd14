"""
Where the operator's side is mounted, on every listener and on the operator socket, and where that socket is.

It imports nothing of the server: a command that asks a running server is to start at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

CONSOLE = "/console"
OPERATOR_API = "/console/api"  # over HTTP and on the operator socket
# Headers of a CSV.
WHOLE_SINCE = "Tollhouse-Whole-Since"  # what answers in JSON say as `whole_since`
CUT_PERIODS = "Tollhouse-Cut-Periods"  # the same of `cut_periods`, separated by commas: CSV keeps its columns
AS = "X-Tollhouse-As"  # the header that names who asks on the operator socket


def console_link(url: str, secret: str) -> str:
    """The secret stands in the fragment, which no browser sends and no log keeps."""
    return f"{url}#link={secret}"


def page_link(console: str, path: str, parameters: Mapping[str, Sequence[str]] | None = None) -> str:
    """A page of the console, with what it shows; whoever opens it signs in. Empty while `console` is."""
    if not console:
        return ""
    pairs = [
        f"{quote(name, safe='')}={quote(each, safe='')}"
        for name, values in (parameters or {}).items()
        for each in values
    ]
    return f"{console}#{path}{'?' if pairs else ''}{'&'.join(pairs)}"


def socket_path(directory: Path) -> Path:
    """Return the path of the operator socket of a running server."""
    try:
        return Path((directory / "operator.path").read_text("utf-8").strip())
    except FileNotFoundError:
        return directory / "operator.sock"
