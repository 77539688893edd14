"""What can be found out about a destination without leaving anything there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporters.errors import Rejected, Retryable, SendError
from exporters.http.client import Client
from exporters.otlp.telemetry import CONTENT_TYPE

OK = "ok"
REFUSED = "refused"  # its route would be parked
UNAVAILABLE = "unavailable"  # nobody answers, or not now: records would wait and be tried again
UNVERIFIED = "unverified"  # nothing speaks against it, and nothing can be sent to try it
UNUSED = "unused"  # nothing is sent there

NO_TRACE = "there is no request that leaves nothing behind"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """`words` are the destination's, or say why nothing was sent."""

    status: str
    words: str | None = None


async def try_export(
    client: Client, url: str, *, authorization: str | None, headers: Mapping[str, str] | None = None
) -> Probe:
    """Sends an empty OTLP export."""
    try:
        await client.send(url, b"", content_type=CONTENT_TYPE, authorization=authorization, headers=headers)
    except SendError as error:
        return failed(error)
    return Probe(status=OK)


def try_file(path: Path) -> Probe:
    """Whether lines can be appended to a file, or the file be made. Nothing is made."""
    try:
        if path.exists():
            usable = path.is_file() and os.access(path, os.R_OK | os.W_OK)
            return Probe(status=OK) if usable else Probe(status=REFUSED, words=f"{path} is no file that can be written")
        directory = next(each for each in path.absolute().parents if each.exists())
        usable = directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
    except OSError as error:
        return Probe(status=REFUSED, words=f"{path}: {error.strerror}")
    return Probe(status=OK) if usable else Probe(status=REFUSED, words=f"{directory} cannot be written to")


def failed(error: SendError) -> Probe:
    """What a failure says about later deliveries. An empty export alone that is refused speaks for key and address."""
    if isinstance(error, Rejected):
        return Probe(status=UNVERIFIED, words=f"it takes no empty export: {error}")
    return Probe(status=UNAVAILABLE if isinstance(error, Retryable) else REFUSED, words=str(error))
