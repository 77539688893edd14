"""What can be found out about a destination without leaving anything there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from exporters.errors import Rejected, Retryable, SendError
from exporters.http.answers import HttpAnswer, refuse_page
from exporters.http.client import PROTOBUF, Client

OK = "ok"
REFUSED = "refused"  # its route would be parked
UNAVAILABLE = "unavailable"  # nobody answers, or not now: records would wait and be tried again
UNVERIFIED = "unverified"  # nothing speaks against it, and nothing can be sent to try it
UNUSED = "unused"  # nothing is sent there

_OTLP = (PROTOBUF, "application/protobuf", "application/json")
NO_TRACE = "it answers; there is no request that would try the key and leave nothing behind"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """`words` are the destination's, or say why nothing was sent."""

    status: str
    words: str | None = None


async def send_nothing(
    client: Client, url: str, *, authorization: str | None, headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    """Send an empty OTLP export; raises SendError."""
    answer = await client.send(url, b"", content_type=PROTOBUF, authorization=authorization, headers=headers)
    refuse_page(answer)
    return answer


async def try_export(
    client: Client, url: str, *, authorization: str | None, headers: Mapping[str, str] | None = None
) -> Probe:
    """Send an empty OTLP export."""
    try:
        answer = await send_nothing(client, url, authorization=authorization, headers=headers)
    except SendError as error:
        return failed(error)
    return answered(answer)


def answered(answer: HttpAnswer) -> Probe:
    """Judge the answer to an empty export that succeeded."""
    if answer.body and answer.media_type not in _OTLP:
        return Probe(status=UNVERIFIED, words=f"it answers {answer.status}, but not as OTLP does")
    return Probe(status=OK)


async def try_connection(client: Client, url: str) -> Probe:
    """Asks for the root of a server, under no key: whether it can be reached and anybody answers."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    try:
        await client.send(root, b"", method="HEAD", content_type=PROTOBUF)
    except SendError as error:
        if not error.answered:
            return failed(error)
    return Probe(status=UNVERIFIED, words=NO_TRACE)


def try_file(path: Path) -> Probe:
    """Try if lines can be appended to a file, or the file be made."""
    try:
        if path.exists() and not (path.is_file() and os.access(path, os.R_OK | os.W_OK)):
            return Probe(status=REFUSED, words=f"{path} is not a file that can be written")
    except OSError as error:
        return Probe(status=REFUSED, words=f"{path}: {error.strerror}")
    return try_directory(path.absolute().parent)


def try_directory(directory: Path) -> Probe:
    """Writes and flushes a file without a name, in the nearest directory above if this one is still to be made."""
    place = directory
    try:
        place = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=place, prefix=".tollhouse-") as file:
            file.write(b"probe\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Probe(status=REFUSED, words=f"{place} cannot be written to: {error.strerror}")
    return Probe(status=OK)


def failed(error: SendError) -> Probe:
    """
    Judge by a failure if later deliveries would work. If only the empty export is refused, key and
    address are good.
    """
    if isinstance(error, Rejected):
        return Probe(status=UNVERIFIED, words=f"it takes no empty export: {error}")
    return Probe(status=UNAVAILABLE if isinstance(error, Retryable) else REFUSED, words=str(error))
