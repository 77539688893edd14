"""Tests of destinations that leave no data at the destination."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from exporters.errors import Rejected, Retryable, SendError
from exporters.http.answers import HttpAnswer, check_not_web_page
from exporters.http.client import PROTOBUF, HttpClient, reach_problem

OK = "ok"
REFUSED = "refused"  # a route to this destination would be paused
# the destination does not respond, or cannot accept data at present; records would wait and be sent again
UNAVAILABLE = "unavailable"
UNVERIFIED = "unverified"  # no problem was found, but no request can test it
UNUSED = "unused"  # nothing is sent to the destination

_OTLP = (PROTOBUF, "application/protobuf", "application/json")
NO_TRACE = "the service responds, but no request can test the key without leaving data there"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """
    The result of a test. `words`: the destination's message, or why nothing was sent. `problem`: a code of
    `reach_problem`.
    """

    status: str
    words: str | None = None
    problem: str = ""


async def send_empty_export(
    client: HttpClient, url: str, *, authorization: str | None, headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    answer = await client.send(url, b"", content_type=PROTOBUF, authorization=authorization, headers=headers)
    check_not_web_page(answer)
    return answer


async def probe_with_empty_export(
    client: HttpClient, url: str, *, authorization: str | None, headers: Mapping[str, str] | None = None
) -> Probe:
    try:
        answer = await send_empty_export(client, url, authorization=authorization, headers=headers)
    except SendError as error:
        return error_probe(error)
    return response_probe(answer)


def response_probe(answer: HttpAnswer) -> Probe:
    if answer.body and answer.media_type not in _OTLP:
        return Probe(status=UNVERIFIED, words=f"the service responds with {answer.status}, but not in OTLP")
    return Probe(status=OK)


async def probe_connection(client: HttpClient, url: str) -> Probe:
    """Request the root of a server without a key, to test whether it can be reached and responds."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    try:
        await client.send(root, b"", method="HEAD", content_type=PROTOBUF)
    except SendError as error:
        if not error.answered:
            return error_probe(error)
    return Probe(status=UNVERIFIED, words=NO_TRACE)


def probe_file(path: Path) -> Probe:
    """Test whether lines can be appended to a file, or whether the file can be created."""
    try:
        if path.exists() and not (path.is_file() and os.access(path, os.R_OK | os.W_OK)):
            return Probe(status=REFUSED, words=f"{path} is not a file that can be written")
    except OSError as error:
        return Probe(status=REFUSED, words=f"{path}: {error.strerror}")
    return probe_directory(path.absolute().parent)


def probe_directory(directory: Path) -> Probe:
    """
    Test a directory by writing and flushing an unnamed file. If it does not exist yet, test the
    nearest existing parent.
    """
    existing = directory
    try:
        existing = next(
            ancestor for ancestor in (directory, *directory.absolute().parents) if ancestor.exists()
        )
        with tempfile.TemporaryFile(dir=existing, prefix=".tollhouse-") as file:
            file.write(b"probe\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Probe(status=REFUSED, words=f"cannot write to {existing}: {error.strerror}")
    return Probe(status=OK)


def error_probe(error: SendError) -> Probe:
    """
    Return the result of a test that raised: whether later deliveries would work.

    If only the empty export is rejected, the key and the address are valid.
    """
    if isinstance(error, Rejected):
        return Probe(status=UNVERIFIED, words=f"the service rejects an empty export: {error}")
    status = UNAVAILABLE if isinstance(error, Retryable) else REFUSED
    return Probe(status=status, words=str(error), problem=reach_problem(error))
