"""
Files and bodies of container metrics: what becomes of each, by its id and once.

A file is announced, uploaded and delivered, or abandoned. Bytes are on disk before a row says so, and a row
before an answer does; what a crash leaves between the two is taken up at the next opening.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from spool.clock import Clock
from spool.container_files import container_rows
from spool.container_files.container_rows import (
    ContainerContents,
    ContainerFileMoved,
    ContainerRows,
    ContentDraft,
)
from spool.container_files.kept import ContainerSums, KeptFiles, Place, recounted
from spool.container_files.values import (
    ABANDONED,
    ANNOUNCED,
    DAMAGED,
    DELIVERED,
    DISCARDED,
    FILE,
    REMOTE_WRITE,
    REPLAYED,
    STATUS,
    UPLOADED,
    AnnouncedFile,
    BookChange,
    ClusterFiles,
    ClusterIdentity,
    ContainerBooks,
    ContainerFile,
    ContainerSender,
    WaitingFiles,
    file_of,
    head_of,
)
from spool.errors import Invalid, NotAllowed, NotThere, SpoolError
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import Expectation
from spool.settings import ContainerSettings

# -- bytes that arrive: bounded, summed, and kept once they are whole ----------------------------------------


class FileTooLarge(SpoolError):
    """It is over container.max_file_bytes."""


class Room(Protocol):
    """Bytes that arrive are held until they are counted with what is kept."""

    @property
    def settings(self) -> ContainerSettings: ...

    async def make_room(self, place: Place, n: int) -> None: ...

    def give_back(self, place: Place, n: int) -> None: ...


class RepeatedUpload:
    """The bytes of a file that is here: nothing of them is kept. Like a `ContainerUpload`."""

    def __init__(self, file: ContainerFile) -> None:
        self.size = 0
        self._file = file
        self._sum = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        self.size += len(data)
        self._sum.update(data)

    async def finish(self) -> bool:
        """False: it was known. Invalid if these are other bytes than those that were kept."""
        check_same(self._file, self._sum.hexdigest())
        return False

    async def drop(self) -> None:
        """Do nothing: a repeated upload stored no bytes."""


class ContainerUpload:
    """`write` until all is there, then `finish`; `drop` after anything else."""

    def __init__(
        self,
        room: Room,
        take: Callable[[ContainerUpload], Awaitable[bool]],
        file: ContainerFile,
        draft: ContentDraft,
        expects: Collection[Expectation] = (),
    ) -> None:
        self.file = file
        self.expects = expects
        self.draft = draft
        self.size = 0
        self.sha256 = ""
        self._room = room
        self._place = (file.identity, file.key)  # under which it arrives
        self._take = take
        self._sum = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        """FileTooLarge, SpoolFull; then the upload must be dropped."""
        most = self._room.settings.max_file_bytes
        if self.size + len(data) > most:
            raise FileTooLarge(f"it is over {most} bytes (container.max_file_bytes)")
        await self._room.make_room(self._place, len(data))
        self.size += len(data)
        self._sum.update(data)
        await self.draft.write(data)

    async def finish(self) -> bool:
        """Keep it; False if it was known already. Invalid if it is not what was announced."""
        self.sha256 = self._sum.hexdigest()
        file = self.file
        if file.announced_size is not None and file.announced_size != self.size:
            raise Invalid(f"the file has {self.size} bytes, and {file.announced_size} were announced")
        if file.announced_sha256 is not None and file.announced_sha256.lower() != self.sha256:
            raise Invalid("the file does not have the sha_256 that was announced")
        await self.draft.flush()
        is_new = await self._take(self)
        self._room.give_back(self._place, self.size)
        return is_new

    async def drop(self) -> None:
        self._room.give_back(self._place, self.size)
        await self.draft.drop()


def check_same(file: ContainerFile, sha256: str) -> None:
    """Invalid if a file that is here is not the one with this sum."""
    if file.sha256 != sha256:
        raise Invalid(
            "another file was taken under this reference_id, and stays: announce this one under its own"
        )


# -- what a crash or a salvage left: bytes without their row -------------------------------------------------


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


# -- files and bodies ----------------------------------------------------------------------------------------


UNKNOWN_HERE = "unknown here"


class ContainerFiles:
    """All container metrics of one storage."""

    def __init__(self, kept: KeptFiles, clock: Clock) -> None:
        self.rows = kept.rows
        self.contents = kept.contents
        self.settings = kept.settings
        self.sums = kept.sums
        self._kept = kept
        self._clock = clock

    @classmethod
    async def open(
        cls, rows: ContainerRows, contents: ContainerContents, settings: ContainerSettings, clock: Clock
    ) -> ContainerFiles:
        """Take up what a crash or a salvage left without its row."""
        kept = KeptFiles(rows, contents, settings, clock, await ContainerSums.read(rows, settings))
        await take_up(kept, clock)
        return cls(kept, clock)

    async def announce(
        self,
        identity: ClusterIdentity,
        announced: Sequence[AnnouncedFile],
        by: ContainerSender,
        *,
        expires_at: float,
    ) -> Sequence[ContainerFile]:
        """The row of each announced file, in their order. SpoolFull if there is no room for new ones."""
        async with self._kept.lock:
            found = await self.rows.named(FILE, identity, [file.reference for file in announced])
            files = {}
            for file in announced:
                row = self._announced(found.get(file.reference), file, identity, by)
                files[file.reference] = replace(row, expires_at=expires_at)
            await self._kept.make_room_for_rows(by.key, sum(name not in found for name in files))
            pairs = [(found.get(name), file) for name, file in files.items()]
            await self._kept.write(pairs, expects=by.expects, is_bounded=True)
        return [files[file.reference] for file in announced]

    def _announced(
        self,
        before: ContainerFile | None,
        file: AnnouncedFile,
        identity: ClusterIdentity,
        by: ContainerSender,
    ) -> ContainerFile:
        if before is None:
            before = self._new(FILE, identity, file.reference, by)
        if before.is_missing or before.state == ABANDONED:
            told: dict[str, Any] = {
                "announced_size": file.size,
                "announced_sha256": file.sha256,
                "key": by.key,
            }
            told |= {"shipper": by.shipper, "agent_version": by.agent_version, "untold": False}
            state = before.state if before.asked else ANNOUNCED
            return replace(before, state=state, **told)
        return before

    async def begin(self, id: str, expects: Collection[Expectation] = ()) -> ContainerUpload | RepeatedUpload:
        """
        Take the bytes of an announced file, or see that they are here. NotThere if nobody waits for them.

        They are kept if `expects` hold then.
        """
        file = await self.rows.find(id)
        if file is None or file.state == ABANDONED:
            raise NotThere("this file is not waited for")
        if not file.is_missing:
            return RepeatedUpload(file)
        draft = await self.contents.begin(id, head_of(file))
        return ContainerUpload(self._kept, self.take, file, draft, expects)

    async def begin_remote_write(
        self, identity: ClusterIdentity, by: ContainerSender, *, request: str
    ) -> ContainerUpload:
        """Take the bytes of a body, which is known by their sum."""
        file = replace(self._new(REMOTE_WRITE, identity, "", by), request=request)
        draft = await self.contents.begin(file.id, head_of(file))
        return ContainerUpload(self._kept, self.take, file, draft, by.expects)

    async def take(self, upload: ContainerUpload) -> bool:
        """Keep an upload that is whole and flushed; False if its bytes were known."""
        now = self._clock.now()
        async with self._kept.lock:
            file = upload.file
            if file.kind == REMOTE_WRITE:
                earlier = await self.rows.named(REMOTE_WRITE, file.identity, [upload.sha256])
                before = earlier.get(upload.sha256)
                is_known = before is not None
                file = replace(file, reference=upload.sha256)
                if not is_known:
                    await self._kept.make_room_for_rows(file.key, 1)
            else:
                before = await self.rows.find(file.id)
                is_known = before is None or not before.is_missing
                file = before or file
            if is_known:
                if before is not None:
                    check_same(before, upload.sha256)
                await upload.draft.drop()
                return False
            await upload.draft.keep()
            facts: dict[str, Any] = {
                "size": upload.size,
                "sha256": upload.sha256,
                "uploaded_at": now,
                "kept": True,
            }
            facts |= {"asked": False, "problem": None, "not_before": 0.0, "done_at": None}
            pair = (before, replace(file, state=UPLOADED, **facts))
            await self._kept.write([pair], expects=upload.expects, is_bounded=True)
        return True

    async def put_status(
        self, identity: ClusterIdentity, name: str, by: ContainerSender, *, request: str, body: bytes
    ) -> None:
        """Keep the newest status of a cluster under `name`, in place of the one before."""
        now = self._clock.now()
        async with self._kept.lock:
            before = (await self.rows.named(STATUS, identity, [name])).get(name)
            if before is None:
                await self._kept.make_room_for_rows(by.key, 1)
            status = replace(
                self._new(STATUS, identity, name, by),
                state=UPLOADED,
                request=request,
                body=body,
                uploaded_at=now,
            )
            status = replace(status, size=len(body), sha256=hashlib.sha256(body).hexdigest())
            gone = [] if before is None else [before]
            await self._kept.write([(None, status)], gone=gone, expects=by.expects, is_bounded=True)

    async def status_taken(self, identity: ClusterIdentity, *, key: str) -> bool:
        """True if a key's status of a cluster is the newest that is kept."""
        found = await self.rows.named(STATUS, identity, ["status", "config"])
        return any(status.key == key for status in found.values())

    async def abandon(
        self, identity: ClusterIdentity, reasons: Mapping[str, str], by: ContainerSender
    ) -> int:
        """The sender has these files no more. What was uploaded stays, and names that are unknown are ignored."""
        async with self._kept.lock:
            found = await self.rows.named(FILE, identity, list(reasons))
            mine = [file for file in found.values() if file.key == by.key and file.is_missing]
            abandoned = [(file, self._abandoned(file, reasons[file.reference])) for file in mine]
            await self._kept.write(abandoned, expects=by.expects)
        return len(mine)

    def _abandoned(self, file: ContainerFile, reason: str) -> ContainerFile:
        state = file.state if file.state == DELIVERED else ABANDONED
        now = self._clock.now()
        return replace(file, state=state, asked=False, untold=file.asked, problem=reason or None, done_at=now)

    async def missing(self, identity: ClusterIdentity, *, key: str, limit: int) -> Sequence[ContainerFile]:
        """Files of a key that are wanted again, and whose bytes are not here."""
        return await self.rows.select(container_rows.MISSING, identity=identity, key=key, limit=limit)

    async def ask(self, identity: ClusterIdentity, references: Iterable[str], by: ContainerSender) -> None:
        """The upstream wants files again; it will hear that those are abandoned which are unknown here."""
        names = list(dict.fromkeys(references))
        now = self._clock.now()
        async with self._kept.lock:
            files = await self.rows.named(FILE, identity, names)
            changed: list[tuple[ContainerFile | None, ContainerFile]] = []
            for name in names:
                file = files.get(name)
                if file is None:
                    new = self._new(FILE, identity, name, by)
                    facts: dict[str, Any] = {"untold": True, "problem": UNKNOWN_HERE, "done_at": now}
                    changed.append((None, replace(new, state=ABANDONED, **facts)))
                elif file.state in (ABANDONED, DISCARDED):
                    changed.append((file, replace(file, untold=True)))
                elif file.state != UPLOADED:
                    changed.append((file, replace(file, asked=True, not_before=0.0)))
            await self._kept.make_room_for_rows(by.key, sum(before is None for before, _ in changed))
            await self._kept.write(changed, is_bounded=True)

    async def due(self, kind: str, *, limit: int) -> Sequence[ContainerFile]:
        """Return the files that are to be sent now. SpoolUnavailable if their states may be lost again."""
        return await self._confirmed(
            await self.rows.select(container_rows.DUE, kind=kind, now=self._clock.now(), limit=limit)
        )

    async def untold(self, *, limit: int) -> Sequence[ContainerFile]:
        """
        Return the files whose state the upstream does not know yet. SpoolUnavailable if their states may
        be lost again.
        """
        return await self._confirmed(await self.rows.select(container_rows.UNTOLD, limit=limit))

    async def _confirmed(self, found: Sequence[ContainerFile]) -> Sequence[ContainerFile]:
        if found:
            await self.rows.confirm()
        return found

    async def told(self, files: Sequence[ContainerFile]) -> None:
        """The upstream knows that they are abandoned."""
        await self._kept.change(files, lambda file: replace(file, untold=False))

    async def settle(self, files: Sequence[ContainerFile]) -> None:
        """The upstream has them. Bytes of a file stay for a replay, those of a body where usage is read."""
        async with self._kept.lock:
            current = [await self.rows.find(file.id) for file in files]
            here = [file for file in current if file is not None and file.is_due]
            bodies = [file for file in here if file.kind == REMOTE_WRITE]
            gone = [file.id for file in bodies if not self._stays(file)]
            again = [BookChange(kind=file.kind, term=REPLAYED, n=1) for file in here if file.asked]
            await self._kept.write([(file, self._delivered(file)) for file in here], changes=again)
            await self.contents.remove(gone)

    def _stays(self, file: ContainerFile) -> bool:
        return file.kind == FILE or (file.kind == REMOTE_WRITE and bool(self.settings.price))

    def _delivered(self, file: ContainerFile) -> ContainerFile:
        kept = file.kept and self._stays(file)
        done: dict[str, Any] = {"asked": False, "problem": None, "done_at": self._clock.now(), "body": b""}
        return replace(file, state=DELIVERED, kept=kept, **done)

    async def postpone(self, file: ContainerFile, problem: str, *, not_before: float) -> None:
        """Note that a file could not be sent, and why; it is tried again from `not_before` on."""
        await self._kept.change([file], lambda one: replace(one, problem=problem, not_before=not_before))

    async def set_damaged(self, file: ContainerFile, problem: str) -> None:
        """Mark a file whose bytes on disk are damaged: its sender is asked for a file again, another body is lost."""
        extra = {
            "action": "container_file_damaged",
            "id": file.id,
            "kind": file.kind,
            "cluster": file.cluster,
        }
        _log.error("bytes of container metrics are damaged: %s", problem, extra=extra)
        facts: dict[str, Any] = {
            "kept": False,
            "asked": file.kind == FILE,
            "problem": problem,
            "not_before": 0.0,
        }
        await self._kept.change([file], lambda one: replace(one, state=DAMAGED, **facts))
        await self.contents.remove([file.id])

    async def find(self, id: str) -> ContainerFile:
        """NotThere if there is no row with this id."""
        file = await self.rows.find(id)
        if file is None:
            raise NotThere(f"there is no file with the id {id!r}")
        return file

    async def discard(self, id: str) -> ContainerFile:
        """Give up what waits for the upstream. NotThere, NotAllowed if it does not wait."""
        async with self._kept.lock:
            file = await self.find(id)
            if file.state != UPLOADED:
                raise NotAllowed(
                    f"the file is {file.state}: only one that waits for the upstream can be discarded"
                )
            facts: dict[str, Any] = {"kept": False, "done_at": self._clock.now(), "body": b""}
            done = replace(file, state=DISCARDED, **facts)
            await self._kept.write([(file, done)])
            await self.contents.remove([id])
        return done

    async def retain(self, *, has_upstream: bool) -> None:
        """Take away what has had its time."""
        await self._kept.retain(has_upstream=has_upstream)

    async def follow(self) -> None:
        """Take in what other processes wrote."""
        await self._kept.follow()

    async def stats(self) -> Sequence[ClusterFiles]:
        return await self.rows.clusters()

    async def waiting(self) -> WaitingFiles:
        return await self.rows.waiting()

    async def verify(self) -> ContainerBooks:
        """Counted from the rows; the running numbers are not trusted."""
        async with self._kept.lock:
            books = await self.rows.books()
            return recounted(books, await self.rows.count())

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]:
        return await self.rows.page(query)

    async def changes(self) -> None:
        """Wait until something is due since the last call; for one reader."""
        await self._kept.changes()

    def _new(
        self, kind: str, identity: ClusterIdentity, reference: str, by: ContainerSender
    ) -> ContainerFile:
        return ContainerFile(
            id=secrets.token_hex(16),
            kind=kind,
            account=identity.account,
            region=identity.region,
            cluster=identity.name,
            reference=reference,
            key=by.key,
            shipper=by.shipper,
            agent_version=by.agent_version,
            announced_at=self._clock.now(),
        )
