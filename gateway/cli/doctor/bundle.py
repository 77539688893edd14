"""
The bundle for a bug report: the diagnosis, the configuration and the state, and no secret.

Nothing is copied that could hold one: of the configuration every value is left out that is free text of the
operator's own, of addresses all but scheme and host; of the data directory the names and sizes of its files alone.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from gateway.cli.doctor.diagnosis import Diagnosis
from gateway.configuration.sections import Config

LEFT_OUT = "(left out)"
# Settings whose text is of a fixed set, or is shown by every list; the text of all others is left out.
_SHOWN = {
    "type", "policy", "emails", "level", "measure", "per", "by", "granularity", "start", "compression", "use_cases",
    "scopes", "topics", "billing_segment", "engine", "tags", "listen", "grpc_listen", "operator_listen",
    "metrics_listen", "idempotency_header",
}  # fmt: skip
_ADDRESSES = {"url", "base_url", "ai_telemetry_url", "gateway", "cors_origins"}
_PATHS = (Path,)


def write_bundle(path: Path, config: Config, found: Sequence[Diagnosis], state: Mapping[str, object]) -> None:
    """A tar.gz that only its owner can read. OSError where it cannot be written; an existing file is not replaced."""
    parts = {
        "diagnosis.json": [asdict(one) for one in found],
        "configuration.json": describe_settings(config),
        "files.json": _files(config.data_dir),
        "status.json": state.get("/status"),
        "books.json": state.get("/verify"),
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in parts.items():
            text = orjson.dumps(content, option=orjson.OPT_INDENT_2, default=str)
            member = tarfile.TarInfo(f"tollhouse-doctor/{name}")
            member.size, member.mode = len(text), 0o600
            archive.addfile(member, io.BytesIO(text))


def describe_settings(settings: object, name: str = "") -> object:
    """A section of the configuration with the values that may be shown."""
    if is_dataclass(settings):
        return {
            each.name: describe_settings(getattr(settings, each.name), each.name) for each in fields(settings)
        }
    if isinstance(settings, Mapping):
        return {"entries": len(settings)} if name != "sources" else _sources(settings)
    if isinstance(settings, tuple | list):
        return [describe_settings(each, name) for each in settings]
    if settings is None or isinstance(settings, bool | int | float | Decimal):
        return settings
    if isinstance(settings, _PATHS):
        return "(a path)"
    return _text(str(settings), name)


def _sources(sources: Mapping[str, object]) -> dict[str, object]:
    return {source: describe_settings(settings) for source, settings in sources.items()}


def _text(text: str, name: str) -> str:
    if not text or name in _SHOWN:
        return text
    if name in _ADDRESSES:
        parts = urlsplit(text)
        return f"{parts.scheme}://{parts.hostname or ''}"
    return LEFT_OUT


def _files(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        return {}
    return {
        path.name: {"bytes": status.st_size, "mode": f"{status.st_mode & 0o7777:o}"}
        for path in sorted(directory.iterdir())
        if (status := path.lstat())
    }
