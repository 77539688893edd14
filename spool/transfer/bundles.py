"""
Bundles: the records that wait on routes, in a file that is sealed with a key, for another installation to send.

A bundle begins with a line of its kind and a line of JSON, then holds frames (length, then compressed records
of one topic), an empty frame, and the HMAC-SHA256 of everything before it. It is authenticated, not encrypted.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import scrypt, sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import UnknownDelivery
from spool.directories import flush_directory
from spool.errors import AlreadyThere, Invalid, NotAllowed
from spool.log.books import topic_of
from spool.log.brought import bring, note_key, noted
from spool.log.partial_reports import PartialReports
from spool.log.protocols import Log
from spool.log.values import Entry
from spool.record import UNIT_COST, Record, pack, unpack

KIND = b"tollhouse bundle 1\n"
MIN_KEY = 12  # characters: shorter ones can be guessed from the seal
MAX_HEADER = 64 * 1024
MAX_FRAME = 64 << 20
STEP = 500  # records in a frame, and in one commit
UNFINISHED = ".unfinished"
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, kw_only=True)
class BundleHeader:
    """What stands in front of the records; `made_at` as RFC 3339."""

    id: str
    version: str
    made_at: str
    salt: str
    routes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Exported:
    records: int
    damaged: int  # records of it that could not be read


@dataclass(frozen=True, kw_only=True)
class Imported:
    """`known`: the log had them, from an earlier import or from their senders."""

    added: int
    known: int


# -- export --------------------------------------------------------------------------------------------------


async def export_bundle(
    log: Log,
    deliveries: Deliveries,
    routes: Sequence[str],
    to: Path,
    key: str,
    *,
    version: str,
    made_at: str,
    ambiguous: bool,
) -> Exported:
    """
    Put what waits on the routes into a bundle and count it as handed over.

    It is held back first, then written and flushed, then counted: a process that is killed meanwhile leaves
    deliveries of unknown outcome whose reason names the bundle. After an error nothing is handed over.
    """
    if any(topic_of(route) == UNIT_COST for route in routes):
        raise Invalid("unit-cost operations are not handed over: their order counts; let their route drain")
    header = BundleHeader(
        id=secrets.token_hex(16), version=version, made_at=made_at, salt=secrets.token_hex(16), routes=routes
    )
    writer = await asyncio.to_thread(_Writer, to, header, key)
    reason = f"handed over in bundle {header.id}"
    apart: list[UnknownDelivery] = []
    try:
        for route in routes:
            apart += await deliveries.set_apart(route, reason=reason, ambiguous=ambiguous)
        damaged: dict[int, int] = {}
        for delivery in apart:
            damaged[delivery.id] = await _write(log, delivery, writer)
        await asyncio.to_thread(writer.finish)
    except BaseException as error:
        writer.discard()
        if not ambiguous:  # else it is not known which of them may be sent under a new key
            for delivery in apart:
                await deliveries.resolve(delivery.id, sent=False)
        if isinstance(error, OSError):
            raise NotAllowed(f"{to} cannot be written: {error.strerror}") from error
        raise
    for delivery in apart:
        await deliveries.hand_over(delivery.id, damaged=damaged[delivery.id])
    return Exported(records=writer.records, damaged=sum(damaged.values()))


async def _write(log: Log, delivery: UnknownDelivery, writer: _Writer) -> int:
    """The records of a delivery as frames; returns how many could not be read."""
    damaged = 0
    for first in range(delivery.first, delivery.last + 1, STEP):
        last = min(delivery.last, first + STEP - 1)
        entries: Sequence[Entry] = (
            [delivery.kept] if delivery.kept else await log.read(delivery.topic, first, last)
        )
        records = [record for entry in entries for record in entry.records if record is not None]
        damaged += last - first + 1 - len(records)
        await asyncio.to_thread(writer.add, delivery.topic, records)
    return damaged


class _Writer:
    """A bundle under another name until it is whole."""

    def __init__(self, to: Path, header: BundleHeader, key: str) -> None:
        if to.exists():
            raise AlreadyThere(f"{to} exists already")
        self.records = 0
        self._to = to
        self._draft = to.with_name(f"{to.name}{UNFINISHED}")
        self._seal = hmac.new(_derived(key, header.salt), digestmod=sha256)
        try:
            self._draft.unlink(missing_ok=True)
            descriptor = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise NotAllowed(f"{to} cannot be written: {error.strerror}") from error
        self._file = os.fdopen(descriptor, "wb")
        self._put(KIND + json.dumps(asdict(header)).encode() + b"\n")

    def add(self, topic: str, records: Sequence[Record]) -> None:
        if records:
            self.records += len(records)
            frame = zlib.compress(msgspec.msgpack.encode((topic, pack(records))), 1)
            self._put(_LENGTH.pack(len(frame)) + frame)

    def finish(self) -> None:
        self._put(_LENGTH.pack(0))
        self._file.write(self._seal.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._draft.rename(self._to)
        flush_directory(self._to.parent)

    def discard(self) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        self._seal.update(data)
        self._file.write(data)


# -- import --------------------------------------------------------------------------------------------------


async def import_bundle(
    log: Log, reports: PartialReports, bundle: Path, key: str, *, now: Callable[[], float]
) -> Imported:
    """
    Bring the records of a bundle into the log, each once, however often it is run or killed.

    How far it came is noted in the commit that brings it, under the bundle's id; a record that came
    another way is known by its own id. NotAllowed, before anything is brought, if the file is not a
    bundle that the key seals.
    """
    header = await asyncio.to_thread(_check, bundle, key)
    note = note_key(f"bundle-{header.id}")
    done = next((noted(report)[0][1] for report in await reports.load() if report.key == note), 0)
    added, place = 0, 0
    frames = _frames(bundle)
    while (frame := await asyncio.to_thread(next, frames, None)) is not None:
        topic, records = frame
        place += len(records)
        if place <= done:
            continue
        receipt = await log.append(
            bring(topic, records, note=note, done=[(1, place)], at=now(), certain=True)
        )
        new = (await log.receipt(receipt.id))["new"]
        assert isinstance(new, int)
        added += new
    return Imported(added=added, known=place - added)


def _check(bundle: Path, key: str) -> BundleHeader:
    """Read all of it once: nothing of a bundle counts before its seal was seen to be right."""
    try:
        with bundle.open("rb") as file:
            header, line = _header(file)
            seal = hmac.new(_derived(key, header.salt), line, digestmod=sha256)
            while True:
                length = file.read(_LENGTH.size)
                seal.update(length)
                (size,) = _LENGTH.unpack(length)
                if not size:
                    break
                frame = file.read(min(size, MAX_FRAME))
                if len(frame) != size:
                    raise ValueError
                seal.update(frame)
            told = file.read(seal.digest_size)
            rest = file.read(1)
    except OSError as error:
        raise NotAllowed(f"{bundle} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, struct.error) as error:
        raise NotAllowed(f"{bundle} is not a bundle, or not all of one") from error
    if rest or not hmac.compare_digest(told, seal.digest()):
        raise NotAllowed(f"the key does not open {bundle}, or the bundle was changed")
    return header


def _header(file: BinaryIO) -> tuple[BundleHeader, bytes]:
    kind = file.readline(len(KIND))
    line = file.readline(MAX_HEADER)
    if kind != KIND:
        raise ValueError
    told: dict[str, Any] = json.loads(line)
    return BundleHeader(**told), kind + line


def _frames(bundle: Path) -> Iterator[tuple[str, list[Record]]]:
    """Read the frames of a bundle that was checked."""
    with bundle.open("rb") as file:
        _header(file)
        while size := _LENGTH.unpack(file.read(_LENGTH.size))[0]:
            topic, packed = _frame.decode(zlib.decompress(file.read(size)))
            yield topic, unpack(packed)


def _derived(key: str, salt: str) -> bytes:
    """
    Derive the key that seals a bundle: slow to guess, and another one for each bundle. Invalid for a key that
    is too short.
    """
    if len(key) < MIN_KEY:
        raise Invalid(f"the key of a bundle has at least {MIN_KEY} characters")
    return scrypt(key.encode(), salt=bytes.fromhex(salt), n=2**15, r=8, p=1, maxmem=64 << 20, dklen=32)


_frame = msgspec.msgpack.Decoder(tuple[str, bytes])
