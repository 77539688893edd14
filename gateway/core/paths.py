"""
Paths of the operator API, the console and the operator socket.

No server code is imported, so that commands that query a running server start quickly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

CONSOLE = "/console"
OPERATOR_API = "/console/api"  # path of the operator API, also on the operator socket
# A CSV response has these headers for the fields that a JSON response has in its body.
WHOLE_SINCE = "Tollhouse-Whole-Since"
# header with the field `cut_periods`, separated by commas; a column would change the CSV
CUT_PERIODS = "Tollhouse-Cut-Periods"
OTHER_UNITS = "Tollhouse-Other-Units"  # header with the field `other_units`: calls and cost
REASON = "X-Tollhouse-Reason"  # header with the reason for looking at figures of a person
REASON_COOKIE = "tollhouse_reason"  # cookie with the same reason, which the console sets
WARNINGS = "Tollhouse-Warnings"  # header with a JSON list of sentences that say what the file lacks
AS = "X-Tollhouse-As"  # header with the person who sends a request on the operator socket


def console_link(url: str, secret: str) -> str:
    """
    Return a link that signs in. The secret is in the fragment, which browsers do not send and logs do not
    contain.
    """
    return f"{url}#link={secret}"


def page_link(console: str, path: str, parameters: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return a link to a console page, without a secret, or "" if `console` is empty."""
    if not console:
        return ""
    pairs = [
        f"{quote(name, safe='')}={quote(value, safe='')}"
        for name, values in (parameters or {}).items()
        for value in values
    ]
    return f"{console}#{path}{'?' if pairs else ''}{'&'.join(pairs)}"


def socket_path(directory: Path) -> Path:
    try:
        return Path((directory / "operator.path").read_text("utf-8").strip())
    except FileNotFoundError:
        return directory / "operator.sock"
