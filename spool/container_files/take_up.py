"""What a crash or a salvage left of container metrics: bytes without their row."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from spool.clock import Clock
from spool.container_files.container_rows import ContainerFileMoved
from spool.container_files.head import file_of
from spool.container_files.kept import KeptFiles
from spool.container_files.values import REMOTE_WRITE, UPLOADED

_log = logging.getLogger(__name__)


async def take_up(kept: KeptFiles, clock: Clock) -> None:
    """Files on disk whose row is lost wait again; those whose row has done with them go."""
    gone = []
    for id, head in (await kept.contents.heads()).items():
        row, told = await kept.rows.find(id), file_of(head)
        if row is not None and row.kept:
            continue
        if row is not None and not row.is_missing:
            gone.append(id)
            continue
        if told is None or told.id != id:
            _log.error(
                "a file without a row cannot be read", extra={"action": "container_file_unknown", "id": id}
            )
            continue
        try:
            size, sum = await _measured(kept.contents.read(id))
        except FileNotFoundError:  # another process removed it meanwhile
            continue
        name = sum if told.kind == REMOTE_WRITE else told.reference
        same = row or (await kept.rows.named(told.kind, told.identity, [name])).get(name)
        if same is not None and same.id != id:
            gone.append(id)
            continue
        facts: dict[str, Any] = {"size": size, "sha256": sum, "kept": True, "uploaded_at": clock.now()}
        file = replace(row or told, reference=name, state=UPLOADED, asked=False, **facts)
        with suppress(ContainerFileMoved):  # another process writes the row at this moment
            await kept.write([(row, file)])
    await kept.contents.remove(gone)


async def _measured(pieces: AsyncIterator[bytes]) -> tuple[int, str]:
    size = 0
    sum = hashlib.sha256()
    async for piece in pieces:
        size += len(piece)
        sum.update(piece)
    return size, sum.hexdigest()
