"""
Files and remote-write bodies of container metrics. Each is stored and delivered once, by its id.

A file is first announced, then either uploaded and delivered, or abandoned. Its bytes are stored before its
row says so, and the row before the response to the sender. A start repairs the state that a crash left.
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
    ContainerFileContents,
    ContainerFileDraft,
    ContainerFileMoved,
    ContainerFileRows,
)
from spool.container_files.stored_files import (
    ContainerFileLimitUse,
    SenderOfCluster,
    StoredContainerFiles,
    recount_container_accounting,
)
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
    ClusterFiles,
    ClusterIdentity,
    ContainerAccounting,
    ContainerFile,
    ContainerSender,
    FileCountChange,
    WaitingFiles,
    decode_head,
    encode_head,
)
from spool.errors import Invalid, NotAllowed, NotThere, SpoolError
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import ExpectedVersion
from spool.settings import ContainerSettings

# -- uploads: bytes are limited and hashed as they arrive
# -----------------------------------------------------


class FileTooLarge(SpoolError):
    """Raised if a file exceeds container.max_file_bytes."""


class UploadSpace(Protocol):
    """A budget of disk space, from which uploads reserve space for arriving bytes."""

    @property
    def settings(self) -> ContainerSettings: ...

    async def reserve_bytes(self, cluster_and_key: SenderOfCluster, n: int) -> None: ...

    def release_bytes(self, cluster_and_key: SenderOfCluster, n: int) -> None: ...


class UploadOfStoredFile:
    """
    An upload of a file that is already stored. It has the interface of `ContainerUpload`, but stores nothing.
    """

    def __init__(self, file: ContainerFile) -> None:
        self.size = 0
        self._file = file
        self._sum = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        self.size += len(data)
        self._sum.update(data)

    async def store_if_new(self) -> bool:
        """
        Compare the upload with the stored file. Return False, because nothing is stored. Raises Invalid if
        the bytes differ.
        """
        check_same_content(self._file, self._sum.hexdigest())
        return False

    async def discard_upload(self) -> None:
        """Do nothing: no bytes were stored."""


class ContainerUpload:
    """
    An upload in progress. Call `write` for each piece, then `store_if_new`. Call `discard_upload` instead
    if it fails.
    """

    def __init__(
        self,
        room: UploadSpace,
        store_upload: Callable[[ContainerUpload], Awaitable[bool]],
        file: ContainerFile,
        draft: ContainerFileDraft,
        expected_versions: Collection[ExpectedVersion] = (),
    ) -> None:
        self.file = file
        self.expects = expected_versions
        self.draft = draft
        self.size = 0
        self.sha256 = ""
        self._room = room
        self._place = (file.identity, file.key)  # cluster and key for which space is reserved
        self._take = store_upload
        self._sum = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        """Add a piece of the file. If this raises FileTooLarge or SpoolFull, call `discard_upload`."""
        max_bytes = self._room.settings.max_file_bytes
        if self.size + len(data) > max_bytes:
            raise FileTooLarge(f"the file is larger than {max_bytes} bytes (container.max_file_bytes)")
        await self._room.reserve_bytes(self._place, len(data))
        self.size += len(data)
        self._sum.update(data)
        await self.draft.write(data)

    async def store_if_new(self) -> bool:
        """
        Complete the upload. Return False if the file was already stored. Raises Invalid if size or checksum
        are not as announced.
        """
        self.sha256 = self._sum.hexdigest()
        file = self.file
        if file.announced_size is not None and file.announced_size != self.size:
            raise Invalid(f"the file has {self.size} bytes, but {file.announced_size} were announced")
        if file.announced_sha256 is not None and file.announced_sha256.lower() != self.sha256:
            raise Invalid("the file does not have the announced sha_256")
        await self.draft.flush()
        is_new = await self._take(self)
        self._room.release_bytes(self._place, self.size)
        return is_new

    async def discard_upload(self) -> None:
        self._room.release_bytes(self._place, self.size)
        await self.draft.delete_draft()


def check_same_content(file: ContainerFile, sha256: str) -> None:
    """Raise Invalid if the file was announced or stored with another checksum."""
    if file.sha256 != sha256:
        raise Invalid(
            "another file was already stored under this reference_id. Announce this file under its "
            "own reference_id"
        )


# -- repair after a crash or a salvage: bytes without a row --------------------------------------------------


_log = logging.getLogger(__name__)


async def reconcile_stored_files(kept: StoredContainerFiles, clock: Clock) -> None:
    """
    Repair the rows after a crash: queue stored bytes without a row for delivery, and delete the bytes of
    files that have ended or are stored twice.
    """
    gone = []
    for id, head in (await kept.contents.header_lines_by_file_id()).items():
        row, restored = await kept.rows.find(id), decode_head(head)
        if row is not None and row.kept:
            continue
        if row is not None and not row.is_missing:
            gone.append(id)
            continue
        if restored is None or restored.id != id:
            _log.error(
                "a container file has no row, and its head is unreadable",
                extra={"action": "container_file_unknown", "id": id},
            )
            continue
        try:
            size, sum = await _size_and_sha256(kept.contents.read(id))
        except FileNotFoundError:  # another process deleted the file
            continue
        name = sum if restored.kind == REMOTE_WRITE else restored.reference
        same = row or (await kept.rows.files_by_reference(restored.kind, restored.identity, [name])).get(name)
        if same is not None and same.id != id:
            gone.append(id)
            continue
        facts: dict[str, Any] = {"size": size, "sha256": sum, "kept": True, "uploaded_at": clock.now()}
        file = replace(row or restored, reference=name, state=UPLOADED, asked=False, **facts)
        with suppress(ContainerFileMoved):  # another process writes the row
            await kept.write_files([(row, file)])
    await kept.contents.remove(gone)


async def _size_and_sha256(pieces: AsyncIterator[bytes]) -> tuple[int, str]:
    size = 0
    sum = hashlib.sha256()
    async for piece in pieces:
        size += len(piece)
        sum.update(piece)
    return size, sum.hexdigest()


# -- files and bodies ----------------------------------------------------------------------------------------


UNKNOWN_HERE = "unknown here"


class ContainerFiles:
    def __init__(self, kept: StoredContainerFiles, clock: Clock) -> None:
        self.rows = kept.rows
        self.contents = kept.contents
        self.settings = kept.settings
        self.sums = kept.sums
        self._kept = kept
        self._clock = clock

    @classmethod
    async def open(
        cls,
        container_rows: ContainerFileRows,
        contents: ContainerFileContents,
        settings: ContainerSettings,
        clock: Clock,
    ) -> ContainerFiles:
        """
        Open the table. After a crash, queue stored bytes without a row, and delete bytes of ended files.
        """
        kept_files = StoredContainerFiles(
            container_rows,
            contents,
            settings,
            clock,
            await ContainerFileLimitUse.read_from_rows(container_rows, settings),
        )
        await reconcile_stored_files(kept_files, clock)
        return cls(kept_files, clock)

    async def announce_files(
        self,
        identity: ClusterIdentity,
        announced: Sequence[AnnouncedFile],
        sender: ContainerSender,
        *,
        expires_at: float,
    ) -> Sequence[ContainerFile]:
        """
        Store a row for each announced file. Return the rows in the order of `announced`. Raises SpoolFull.
        """
        async with self._kept.lock:
            known_files = await self.rows.files_by_reference(
                FILE, identity, [file.reference for file in announced]
            )
            files = {}
            for file in announced:
                row = self._announce_file(known_files.get(file.reference), file, identity, sender)
                files[file.reference] = replace(row, expires_at=expires_at)
            await self._kept.make_room_for_rows(sender.key, sum(name not in known_files for name in files))
            pairs = [(known_files.get(name), file) for name, file in files.items()]
            await self._kept.write_files(
                pairs, expected_versions=sender.expects, is_limited_by_max_files=True
            )
        return [files[file.reference] for file in announced]

    def _announce_file(
        self,
        before: ContainerFile | None,
        file: AnnouncedFile,
        identity: ClusterIdentity,
        sender: ContainerSender,
    ) -> ContainerFile:
        if before is None:
            before = self._new_file(FILE, identity, file.reference, sender)
        if before.is_missing or before.state == ABANDONED:
            facts: dict[str, Any] = {
                "announced_size": file.size,
                "announced_sha256": file.sha256,
                "key": sender.key,
            }
            facts |= {"shipper": sender.shipper, "agent_version": sender.agent_version, "untold": False}
            state = before.state if before.asked else ANNOUNCED
            return replace(before, state=state, **facts)
        return before

    async def begin_upload(
        self, id: str, expected_versions: Collection[ExpectedVersion] = ()
    ) -> ContainerUpload | UploadOfStoredFile:
        """
        Begin the upload of an announced file. If the file is already stored, the upload stores nothing.

        `expected_versions` are checked when the upload is complete. Raises NotThere if the file was not announced.
        """
        file = await self.rows.find(id)
        if file is None or file.state == ABANDONED:
            raise NotThere("this file is not expected. Announce it first")
        if not file.is_missing:
            return UploadOfStoredFile(file)
        draft = await self.contents.begin_draft(id, encode_head(file))
        return ContainerUpload(self._kept, self.store_upload_if_new, file, draft, expected_versions)

    async def begin_remote_write(
        self, identity: ClusterIdentity, sender: ContainerSender, *, request: str
    ) -> ContainerUpload:
        """Begin to store a remote-write body. Its checksum identifies it, so an equal body is stored once."""
        file = replace(self._new_file(REMOTE_WRITE, identity, "", sender), request=request)
        draft = await self.contents.begin_draft(file.id, encode_head(file))
        return ContainerUpload(self._kept, self.store_upload_if_new, file, draft, sender.expects)

    async def store_upload_if_new(self, upload: ContainerUpload) -> bool:
        """
        Store a complete upload: its bytes, then its row. Return False if the file was already stored.

        Raises Invalid if other bytes are stored, KeyEnded, or TooManyFiles.
        """
        now = self._clock.now()
        async with self._kept.lock:
            file = upload.file
            if file.kind == REMOTE_WRITE:
                earlier = await self.rows.files_by_reference(REMOTE_WRITE, file.identity, [upload.sha256])
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
                    check_same_content(before, upload.sha256)
                await upload.draft.delete_draft()
                return False
            await upload.draft.store_draft()
            facts: dict[str, Any] = {
                "size": upload.size,
                "sha256": upload.sha256,
                "uploaded_at": now,
                "kept": True,
            }
            facts |= {"asked": False, "problem": None, "not_before": 0.0, "done_at": None}
            pair = (before, replace(file, state=UPLOADED, **facts))
            await self._kept.write_files(
                [pair], expected_versions=upload.expects, is_limited_by_max_files=True
            )
        return True

    async def put_status(
        self, identity: ClusterIdentity, name: str, sender: ContainerSender, *, request: str, body: bytes
    ) -> None:
        now = self._clock.now()
        async with self._kept.lock:
            before = (await self.rows.files_by_reference(STATUS, identity, [name])).get(name)
            if before is None:
                await self._kept.make_room_for_rows(sender.key, 1)
            status = replace(
                self._new_file(STATUS, identity, name, sender),
                state=UPLOADED,
                request=request,
                body=body,
                uploaded_at=now,
            )
            status = replace(status, size=len(body), sha256=hashlib.sha256(body).hexdigest())
            gone = [] if before is None else [before]
            await self._kept.write_files(
                [(None, status)],
                removed_files=gone,
                expected_versions=sender.expects,
                is_limited_by_max_files=True,
            )

    async def has_newest_status(self, identity: ClusterIdentity, *, key: str) -> bool:
        statuses = await self.rows.files_by_reference(STATUS, identity, ["status", "config"])
        return any(status.key == key for status in statuses.values())

    async def mark_files_abandoned(
        self, identity: ClusterIdentity, reasons: Mapping[str, str], sender: ContainerSender
    ) -> int:
        """
        Mark files as abandoned because the sender no longer has them. `reasons`: by file reference. Uploaded
        and unknown files do not change.
        """
        async with self._kept.lock:
            known_files = await self.rows.files_by_reference(FILE, identity, list(reasons))
            missing = [file for file in known_files.values() if file.key == sender.key and file.is_missing]
            abandoned = [(file, self._abandoned_file(file, reasons[file.reference])) for file in missing]
            await self._kept.write_files(abandoned, expected_versions=sender.expects)
        return len(missing)

    def _abandoned_file(self, file: ContainerFile, reason: str) -> ContainerFile:
        state = file.state if file.state == DELIVERED else ABANDONED
        now = self._clock.now()
        return replace(file, state=state, asked=False, untold=file.asked, problem=reason or None, done_at=now)

    async def missing_files(
        self, identity: ClusterIdentity, *, key: str, limit: int
    ) -> Sequence[ContainerFile]:
        """
        Return files of a key that must be uploaded: the cost service requested them again, or their bytes
        were damaged.
        """
        return await self.rows.select_files(container_rows.MISSING, identity=identity, key=key, limit=limit)

    async def request_files_again(
        self, identity: ClusterIdentity, references: Iterable[str], sender: ContainerSender
    ) -> None:
        """
        Mark files that the cost service requests again. An unknown or deleted file is recorded as abandoned,
        so that this is reported.
        """
        names = list(dict.fromkeys(references))
        now = self._clock.now()
        async with self._kept.lock:
            files = await self.rows.files_by_reference(FILE, identity, names)
            changed: list[tuple[ContainerFile | None, ContainerFile]] = []
            for name in names:
                file = files.get(name)
                if file is None:
                    new = self._new_file(FILE, identity, name, sender)
                    facts: dict[str, Any] = {"untold": True, "problem": UNKNOWN_HERE, "done_at": now}
                    changed.append((None, replace(new, state=ABANDONED, **facts)))
                elif file.state in (ABANDONED, DISCARDED):
                    changed.append((file, replace(file, untold=True)))
                elif file.state != UPLOADED:
                    changed.append((file, replace(file, asked=True, not_before=0.0)))
            await self._kept.make_room_for_rows(sender.key, sum(before is None for before, _ in changed))
            await self._kept.write_files(changed, is_limited_by_max_files=True)

    async def due_files(self, kind: str, *, limit: int, due_at: float = 0.0) -> Sequence[ContainerFile]:
        """
        Return the files of this kind that are due for sending now, or at the later time `due_at`. Raises
        SpoolUnavailable if their states are not durable yet.
        """
        return await self._wait_until_files_durable(
            await self.rows.select_files(
                container_rows.DUE, kind=kind, now=max(due_at, self._clock.now()), limit=limit
            )
        )

    async def unreported_files(self, *, limit: int) -> Sequence[ContainerFile]:
        """
        Return abandoned files that have not been reported to the cost service. Raises SpoolUnavailable if
        their states are not durable yet.
        """
        return await self._wait_until_files_durable(
            await self.rows.select_files(container_rows.UNTOLD, limit=limit)
        )

    async def _wait_until_files_durable(self, files: Sequence[ContainerFile]) -> Sequence[ContainerFile]:
        if files:
            await self.rows.wait_until_durable()
        return files

    async def mark_reported(self, files: Sequence[ContainerFile]) -> None:
        """Store that the cost service knows that these files are abandoned."""
        await self._kept.change_files(files, lambda file: replace(file, untold=False))

    async def mark_delivered(self, files: Sequence[ContainerFile]) -> None:
        """
        Store that the cost service has received the files.

        The bytes of files stay for a replay. The bytes of remote-write bodies stay only if usage is computed
        from them.
        """
        async with self._kept.lock:
            current = [await self.rows.find(file.id) for file in files]
            due_files = [file for file in current if file is not None and file.is_due]
            bodies = [file for file in due_files if file.kind == REMOTE_WRITE]
            gone = [file.id for file in bodies if not self._is_kept_after_delivery(file)]
            replays = [
                FileCountChange(kind=file.kind, term=REPLAYED, n=1) for file in due_files if file.asked
            ]
            await self._kept.write_files(
                [(file, self._delivered_file(file)) for file in due_files], changes=replays
            )
            await self.contents.remove(gone)

    def _is_kept_after_delivery(self, file: ContainerFile) -> bool:
        return file.kind == FILE or (file.kind == REMOTE_WRITE and bool(self.settings.price))

    def _delivered_file(self, file: ContainerFile) -> ContainerFile:
        is_kept = file.kept and self._is_kept_after_delivery(file)
        delivered_fields: dict[str, Any] = {
            "asked": False,
            "problem": None,
            "done_at": self._clock.now(),
            "body": b"",
        }
        return replace(file, state=DELIVERED, kept=is_kept, **delivered_fields)

    async def postpone_sending(self, file: ContainerFile, problem: str, *, not_before: float) -> None:
        """Store why the file was not sent. It is due again at `not_before`."""
        await self._kept.change_files(
            [file], lambda stored: replace(stored, problem=problem, not_before=not_before)
        )

    async def mark_damaged(self, file: ContainerFile, problem: str) -> None:
        """
        Store that the bytes of a file are damaged. The sender is asked to upload it again; a remote-write
        body is lost.
        """
        extra = {
            "action": "container_file_damaged",
            "id": file.id,
            "kind": file.kind,
            "cluster": file.cluster,
        }
        _log.error("stored bytes of container metrics are damaged: %s", problem, extra=extra)
        facts: dict[str, Any] = {
            "kept": False,
            "asked": file.kind == FILE,
            "problem": problem,
            "not_before": 0.0,
        }
        await self._kept.change_files([file], lambda stored: replace(stored, state=DAMAGED, **facts))
        await self.contents.remove([file.id])

    async def find_file(self, id: str) -> ContainerFile:
        """Return the row with this id. Raises NotThere."""
        file = await self.rows.find(id)
        if file is None:
            raise NotThere(f"there is no file with the id {id!r}")
        return file

    async def discard_file(self, id: str) -> ContainerFile:
        """
        Give up a file that waits for delivery, and delete its bytes. Raises NotThere, or NotAllowed if it
        does not wait.
        """
        async with self._kept.lock:
            file = await self.find_file(id)
            if file.state != UPLOADED:
                raise NotAllowed(
                    f"the file is {file.state}. Only a file that waits for delivery can be discarded"
                )
            facts: dict[str, Any] = {"kept": False, "done_at": self._clock.now(), "body": b""}
            discarded = replace(file, state=DISCARDED, **facts)
            await self._kept.write_files([(file, discarded)])
            await self.contents.remove([id])
        return discarded

    async def delete_expired(self, *, has_upstream: bool) -> None:
        await self._kept.delete_expired(has_upstream=has_upstream)

    async def read_changes_of_other_processes(self) -> None:
        await self._kept.read_changes_of_other_processes()

    async def cluster_files(self) -> Sequence[ClusterFiles]:
        return await self.rows.cluster_files()

    async def waiting_files(self) -> WaitingFiles:
        return await self.rows.waiting_files()

    async def recount_accounting(self) -> ContainerAccounting:
        """Recount the rows and compare the result with the running counts."""
        async with self._kept.lock:
            books = await self.rows.file_counters_by_kind_and_state()
            return recount_container_accounting(books, await self.rows.counts_by_state())

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]:
        return await self.rows.page(query)

    async def wait_for_changes(self) -> None:
        """Wait until rows change. Only one reader may call this."""
        await self._kept.wait_for_changes()

    def _new_file(
        self, kind: str, identity: ClusterIdentity, reference: str, sender: ContainerSender
    ) -> ContainerFile:
        return ContainerFile(
            id=secrets.token_hex(16),
            kind=kind,
            account=identity.account,
            region=identity.region,
            cluster=identity.name,
            reference=reference,
            key=sender.key,
            shipper=sender.shipper,
            agent_version=sender.agent_version,
            announced_at=self._clock.now(),
        )
