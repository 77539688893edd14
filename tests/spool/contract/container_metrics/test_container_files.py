"""Container metrics: the states of each file, its identity, and the limits of storage."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spool.container_files import container_rows
from spool.container_files.files import ContainerFiles, FileTooLarge
from spool.container_files.stored_files import ContainerFileLimitUse
from spool.container_files.values import (
    ABANDONED,
    ANNOUNCED,
    DAMAGED,
    DELIVERED,
    DISCARDED,
    EXPIRED,
    FILE,
    REFERENCES,
    REMOTE_WRITE,
    REPLAYED,
    STATUS,
    SUPERSEDED,
    UNUSED,
    UPLOADED,
    AnnouncedFile,
    ClusterIdentity,
    ContainerFile,
    ContainerFileSums,
    ContainerSender,
    FileCountChange,
    WaitingFiles,
)
from spool.engines import open_storage
from spool.errors import Invalid, NotAllowed, NotThere, SpoolFull
from spool.listing import ASCENDING, ListQuery, SortField
from spool.settings import ContainerPrice, ContainerSettings, SpoolSettings
from spool.storage import Storage, StorageOptions
from spool.transfer import backups
from tests.moved_clock import MovedClock

CLUSTER = ClusterIdentity("123456789012", "us-east-1", "prod")
OTHER = ClusterIdentity("123456789012", "us-east-1", "test")
AGENT = ContainerSender(key="agent", shipper="shipper-1", agent_version="1.2.12")
STRANGER = ContainerSender(key="stranger")
HOUR = 3600.0

Opener = Callable[..., Awaitable[Storage]]


@pytest.fixture
async def open_files(options: StorageOptions) -> AsyncIterator[Opener]:
    """Return a function that opens a storage with these limits of container metrics."""
    opened: list[Storage] = []

    async def opener(**limits: Any) -> Storage:
        limited = replace(options, container=replace(ContainerSettings(), **limits))
        opened.append(await open_storage(limited, engine=options.storage.engine))
        return opened[-1]

    yield opener
    for storage in opened:
        await storage.close()


@pytest.fixture
async def files(open_files: Opener) -> ContainerFiles:
    return (await open_files()).container_files


async def announce(
    files: ContainerFiles,
    *references: str,
    cluster: ClusterIdentity = CLUSTER,
    sender: ContainerSender = AGENT,
) -> list[ContainerFile]:
    announced = [AnnouncedFile(reference=reference) for reference in references]
    return list(await files.announce_files(cluster, announced, sender, expires_at=files._clock.now() + HOUR))


async def send(files: ContainerFiles, id: str, data: bytes) -> bool:
    """Upload a file as the API does. Return False if its bytes were known."""
    upload = await files.begin_upload(id)
    try:
        await upload.write(data)
        return await upload.store_if_new()
    except BaseException:
        await upload.discard_upload()
        raise


async def put(
    files: ContainerFiles,
    reference: str,
    data: bytes,
    *,
    cluster: ClusterIdentity = CLUSTER,
    by: ContainerSender | None = None,
) -> str:
    [file] = await announce(files, reference, cluster=cluster, sender=by or AGENT)
    assert await send(files, file.id, data)
    return file.id


async def kept(files: ContainerFiles, *ids: str) -> list[bool]:
    """Return for each id whether its bytes are stored."""
    return [file is not None and file.kept for file in [await files.rows.find(id) for id in ids]]


async def content(files: ContainerFiles, id: str) -> bytes:
    return b"".join([piece async for piece in files.contents.read(id)])


async def state(files: ContainerFiles, id: str) -> str:
    file = await files.rows.find(id)
    assert file is not None
    return file.state


async def balanced(files: ContainerFiles) -> bool:
    """Return whether the running accounting equals a recount."""
    counted = await files.recount_accounting()
    running = {
        kind: {term: n for term, n in terms.items() if n}
        for kind, terms in files.sums.accounting().terms.items()
    }
    again = {kind: {term: n for term, n in terms.items() if n} for kind, terms in counted.terms.items()}
    return (counted.imbalances, again) == ((), running)


async def test_a_file_is_announced_uploaded_and_delivered(files: ContainerFiles) -> None:
    """
    A file is announced, uploaded and delivered. The delivered bytes are the uploaded bytes, and the
    accounting follows each step.
    """
    [file] = await announce(files, "one.parquet")
    assert file.state == ANNOUNCED
    assert file.kept is False
    assert await send(files, file.id, b"metrics")
    [due] = await files.due_files(FILE, limit=10)
    assert await content(files, due.id) == b"metrics"
    assert hashlib.sha256(b"metrics").hexdigest() == due.sha256
    await files.mark_delivered([due])
    assert DELIVERED == await state(files, file.id)
    assert [] == list(await files.due_files(FILE, limit=10))
    assert files.sums.sum_file_counters(REFERENCES, FILE) == 1
    assert files.sums.sum_file_counters(DELIVERED, FILE) == 1
    assert await balanced(files)


async def test_repeated_reference_changes_nothing(files: ContainerFiles) -> None:
    """
    A file that is announced and sent again stays one file with its first bytes. Different bytes are refused.
    """
    id = await put(files, "one.parquet", b"first")
    [again] = await announce(files, "one.parquet")
    assert again.id == id
    assert await send(files, again.id, b"first") is False
    with pytest.raises(Invalid, match="under its own"):
        await send(files, again.id, b"second")
    assert b"first" == await content(files, id)
    assert 1 == len(await files.due_files(FILE, limit=10))
    [elsewhere] = await announce(files, "one.parquet", cluster=OTHER)
    assert id != elsewhere.id


async def test_two_uploads_of_one_file_are_one(files: ContainerFiles) -> None:
    """
    Of two uploads of one file, the one that ends first counts. Afterwards the same bytes count as known, and
    different bytes are refused.
    """
    [file] = await announce(files, "one.parquet")
    first, second, third = [await files.begin_upload(file.id) for _ in range(3)]
    await first.write(b"first")
    await second.write(b"second")
    await third.write(b"second")
    assert await second.store_if_new() is True
    assert await third.store_if_new() is False
    with pytest.raises(Invalid, match="under its own"):
        await first.store_if_new()
    await first.discard_upload()
    assert b"second" == await content(files, file.id)
    assert files.sums.total_bytes == 6
    assert await balanced(files) is True


async def test_a_file_must_be_what_was_announced(files: ContainerFiles) -> None:
    """Bytes with a different size or checksum are refused and leave nothing behind."""
    right = hashlib.sha256(b"metrics").hexdigest()
    wrong = [AnnouncedFile(reference="size", size=8), AnnouncedFile(reference="sum", sha256="0" * 64)]
    for file in await files.announce_files(CLUSTER, wrong, AGENT, expires_at=1e12):
        with pytest.raises(Invalid):
            await send(files, file.id, b"metrics")
        assert ANNOUNCED == await state(files, file.id)
    both = AnnouncedFile(reference="both", size=7, sha256=right.upper())
    [file] = await files.announce_files(CLUSTER, [both], AGENT, expires_at=1e12)
    assert await send(files, file.id, b"metrics")
    assert 7 == files.sums.total_bytes


@pytest.mark.one_engine
async def test_only_what_was_not_uploaded_can_be_abandoned(files: ContainerFiles) -> None:
    """A sender cannot abandon an uploaded file. A sender that abandoned a file may still upload it later."""
    uploaded = await put(files, "uploaded", b"metrics")
    [announced, foreign] = await announce(files, "announced", "foreign")
    assert 1 == await files.mark_files_abandoned(
        CLUSTER, {"uploaded": "gone", "announced": "gone", "unknown": ""}, AGENT
    )
    assert 0 == await files.mark_files_abandoned(
        CLUSTER, {"foreign": "gone", "announced": "gone"}, ContainerSender(key="another")
    )
    states = [await state(files, id) for id in (uploaded, announced.id, foreign.id)]
    assert [UPLOADED, ABANDONED, ANNOUNCED] == states
    with pytest.raises(NotThere):
        await files.begin_upload(announced.id)
    [again] = await announce(files, "announced")
    assert announced.id == again.id
    assert await send(files, again.id, b"found") is True
    assert await balanced(files)
    assert [] == list(await files.unreported_files(limit=10))


async def test_replay_is_served_from_stored_bytes(files: ContainerFiles) -> None:
    """
    If the upstream requests a delivered file again and its bytes are still stored, the file is sent and
    counts as delivered again.
    """
    id = await put(files, "one.parquet", b"metrics")
    await files.mark_delivered(await files.due_files(FILE, limit=10))
    await files.request_files_again(CLUSTER, ["one.parquet", "one.parquet"], AGENT)
    [due] = await files.due_files(FILE, limit=10)
    assert due.id == id
    assert await content(files, due.id) == b"metrics"
    await files.mark_delivered([due])
    assert list(await files.due_files(FILE, limit=10)) == []
    assert files.sums.sum_file_counters(REPLAYED, FILE) == 1
    assert await balanced(files)


@pytest.mark.one_engine
async def test_replay_of_a_deleted_file_is_requested_from_its_sender(
    files: ContainerFiles, clock: MovedClock
) -> None:
    """
    A replay of a deleted file is requested only from the key that announced it. The file is uploaded again,
    or the upstream learns that it is lost.
    """
    for name in ("first", "second"):
        await put(files, name, b"metrics")
    await files.mark_delivered(await files.due_files(FILE, limit=10))
    clock.move(8 * 24 * HOUR)
    await files.delete_expired(has_upstream=True)
    assert 0 == files.sums.total_bytes
    await files.request_files_again(CLUSTER, ["first", "second"], AGENT)
    missing = await files.missing_files(CLUSTER, key="agent", limit=10)
    assert {"first", "second"} == {file.reference for file in missing}
    assert [] == list(await files.missing_files(CLUSTER, key="another", limit=10))
    assert [] == list(await files.missing_files(OTHER, key="agent", limit=10))
    [first] = [file for file in missing if file.reference == "first"]
    assert await send(files, first.id, b"metrics again")
    assert 1 == await files.mark_files_abandoned(CLUSTER, {"second": "purged"}, AGENT)
    [untold] = await files.unreported_files(limit=10)
    assert untold.reference == "second"
    assert untold.problem == "purged"
    await files.mark_reported([untold])
    assert list(await files.unreported_files(limit=10)) == []
    assert list(await files.missing_files(CLUSTER, key="agent", limit=9)) == []
    assert [first.id] == [file.id for file in await files.due_files(FILE, limit=10)]
    assert await balanced(files)


@pytest.mark.one_engine
async def test_a_replay_of_what_is_unknown_is_abandoned(files: ContainerFiles) -> None:
    """
    If the upstream asks for a file that Tollhouse does not have, the request is answered with "abandoned". Then the
    upstream stops its requests.
    """
    await files.request_files_again(CLUSTER, ["never-seen"], AGENT)
    [untold] = await files.unreported_files(limit=10)
    assert untold.reference == "never-seen"
    assert untold.state == ABANDONED
    assert await balanced(files)


async def test_damaged_file_is_requested_from_its_sender_again(files: ContainerFiles) -> None:
    """A received file whose bytes are damaged is requested from its sender again. They take up no more space."""
    id = await put(files, "one.parquet", b"metrics")
    [due] = await files.due_files(FILE, limit=1)
    await files.mark_damaged(due, "another checksum")
    with pytest.raises(FileNotFoundError):
        await content(files, id)
    assert await state(files, id) == DAMAGED
    assert list(await files.due_files(FILE, limit=1)) == []
    [missing] = await files.missing_files(CLUSTER, key="agent", limit=10)
    assert await send(files, missing.id, b"metrics")
    assert await state(files, id) == UPLOADED
    assert await balanced(files) is True


async def test_a_body_of_remote_write_is_known_by_its_sum(files: ContainerFiles) -> None:
    """
    A remote-write body that is sent again counts once, because its checksum is known. Its bytes are deleted after
    the delivery.
    """
    for is_new in (True, False):
        upload = await files.begin_remote_write(CLUSTER, AGENT, request='{"type": "x"}')
        await upload.write(b"samples")
        assert is_new == await upload.store_if_new()
    [due] = await files.due_files(REMOTE_WRITE, limit=10)
    assert due.request == '{"type": "x"}'
    assert await content(files, due.id) == b"samples"
    await files.mark_delivered([due])
    assert files.sums.total_bytes == 0
    assert files.sums.sum_file_counters(DELIVERED, REMOTE_WRITE) == 1
    assert await balanced(files)


@pytest.mark.one_engine
async def test_a_delivered_body_stays_where_usage_is_read(open_files: Opener) -> None:
    """
    If Tollhouse computes container usage, a delivered remote-write body stays stored, as delivered files do.
    """
    files = (await open_files(price=(ContainerPrice(),))).container_files
    upload = await files.begin_remote_write(CLUSTER, AGENT, request="{}")
    await upload.write(b"samples")
    await upload.store_if_new()
    [due] = await files.due_files(REMOTE_WRITE, limit=10)
    await files.mark_delivered([due])
    assert b"samples" == await content(files, due.id)
    found = await files.rows.select_files(container_rows.READABLE, now=0.0, limit=9)
    assert [each.state for each in found] == [DELIVERED]
    assert await balanced(files) is True


async def test_newer_status_is_sent_after_delivery_of_the_older_one(files: ContainerFiles) -> None:
    """
    If a newer status arrives while an older one is delivered, this delivery does not settle the new status, which
    is still sent.
    """
    await files.put_status(CLUSTER, "status", AGENT, request="", body=b"started")
    old = await files.due_files(STATUS, limit=10)
    await files.put_status(CLUSTER, "status", AGENT, request="", body=b"ok")
    await files.mark_delivered(old)
    [due] = await files.due_files(STATUS, limit=10)
    assert b"ok" == due.body
    await files.mark_delivered([due])
    assert files.sums.sum_file_counters(SUPERSEDED, STATUS) == 1
    assert files.sums.sum_file_counters(DELIVERED, STATUS) == 1
    taken = [await files.has_newest_status(CLUSTER, key=key) for key in ("agent", "another")]
    assert taken == [True, False]
    assert await files.has_newest_status(OTHER, key="agent") is False
    assert await balanced(files)


async def test_file_of_the_largest_size_is_accepted(open_files: Opener) -> None:
    """
    A file exactly at the size limit is accepted. A file with one byte more is refused and leaves nothing behind.
    """
    files = (await open_files(max_file_bytes=1024)).container_files
    await put(files, "fits", b"x" * 1024)
    [file] = await announce(files, "over")
    with pytest.raises(FileTooLarge, match=r"container\.max_file_bytes"):
        await send(files, file.id, b"x" * 1025)
    assert 1024 == files.sums.total_bytes


@pytest.mark.one_engine
async def test_delivered_files_of_a_cluster_make_room_and_waiting_ones_do_not(open_files: Opener) -> None:
    """At the limit, the oldest delivered files are deleted. Waiting files are never deleted."""
    files = (await open_files(max_cluster_bytes=2048)).container_files
    first = await put(files, "first", b"x" * 1024)
    await files.mark_delivered(await files.due_files(FILE, limit=1))
    second, third = [await put(files, name, b"x" * 1024) for name in ("second", "third")]
    assert [False, True, True] == await kept(files, first, second, third)
    [file] = await announce(files, "fourth")
    with pytest.raises(SpoolFull, match=r"container\.max_cluster_bytes"):
        await send(files, file.id, b"x")
    await put(files, "elsewhere", b"x" * 1024, cluster=OTHER)
    await put(files, "of another key", b"x" * 2048, by=STRANGER)
    assert await balanced(files)


async def test_a_key_whose_files_wait_leaves_room_for_those_of_another(open_files: Opener) -> None:
    """Delivered files are deleted before an upload is refused for the total limit."""
    files = (await open_files(max_bytes=4096)).container_files
    spent = await put(files, "spent", b"x" * 1024)
    await files.mark_delivered(await files.due_files(FILE, limit=1))
    await put(files, "waits", b"x" * 2047)
    await put(files, "fits", b"x")
    [file] = await announce(files, "over")
    with pytest.raises(
        SpoolFull, match=r"this key .* container\.max_bytes, which is half of what other keys leave free"
    ):
        await send(files, file.id, b"x")
    await put(files, "of another", b"x" * 1024, by=STRANGER)
    assert [True] == await kept(files, spent)
    await put(files, "of a third", b"x" * 512, by=ContainerSender(key="third"))
    assert [False] == await kept(files, spent)
    again = await ContainerFileLimitUse.read_from_rows(
        files.rows, files.settings
    )  # read the sums again, as after a restart
    assert (
        {"agent": 2048, "stranger": 1024, "third": 512}
        == files.sums.waiting_bytes_by_key
        == again.waiting_bytes_by_key
    )
    assert 3584 == files.sums.total_bytes == again.total_bytes
    assert await balanced(files)


@pytest.mark.one_engine
async def test_the_fullest_key_makes_room(open_files: Opener, clock: MovedClock) -> None:
    """
    If space runs out, the oldest delivered file of the key with the most bytes is deleted, even if another
    key has an older file.
    """
    files = (await open_files(max_bytes=4096)).container_files
    older = await put(files, "older", b"x" * 1024, by=STRANGER)
    clock.move(1)
    first = await put(files, "first", b"x" * 1024)
    await files.mark_delivered(await files.due_files(FILE, limit=9))
    clock.move(1)
    second = await put(files, "second", b"x" * 1024)
    await files.mark_delivered(await files.due_files(FILE, limit=9))
    await put(files, "new", b"x" * 1500, by=STRANGER)
    assert [True, False, True] == await kept(files, older, first, second)


async def test_files_that_are_done_are_forgotten_for_new_ones(open_files: Opener, clock: MovedClock) -> None:
    """
    At the limit of known files, finished files are forgotten for new ones. If all known files wait, a new
    file is refused. The accounting still counts forgotten files.
    """
    files = (await open_files(max_files=4)).container_files
    await announce(files, "one", "two")
    with pytest.raises(SpoolFull, match=r"container\.max_files"):
        await announce(files, "three")
    other = ContainerSender(key="other")
    await announce(files, "three", sender=other)
    clock.move(2 * HOUR)
    await files.delete_expired(has_upstream=True)
    assert 3 == files.sums.sum_file_counters(UNUSED, FILE)
    await announce(files, "four", "five")
    assert files.sums.row_count == 2
    assert files.sums.sum_file_counters(REFERENCES, FILE) == 5
    assert await balanced(files)


async def test_waiting_files_expire_only_without_an_upstream(
    files: ContainerFiles, clock: MovedClock
) -> None:
    """
    With an upstream, a waiting file is stored without a time limit. Without an upstream, it expires
    after its time.
    """
    id = await put(files, "one.parquet", b"metrics")
    clock.move(8 * 24 * HOUR)
    await files.delete_expired(has_upstream=True)
    assert UPLOADED == await state(files, id)
    await files.delete_expired(has_upstream=False)
    assert await state(files, id) == EXPIRED
    assert files.sums.total_bytes == 0
    assert await balanced(files)


async def test_an_operator_discards_what_waits(files: ContainerFiles) -> None:
    id = await put(files, "one.parquet", b"metrics")
    assert DISCARDED == (await files.discard_file(id)).state
    assert files.sums.total_bytes == 0
    assert list(await files.due_files(FILE, limit=1)) == []
    assert await send(files, id, b"metrics") is False
    with pytest.raises(NotAllowed):
        await files.discard_file(id)
    with pytest.raises(NotThere):
        await files.discard_file("none")
    assert await balanced(files)


async def test_what_did_not_leave_waits(files: ContainerFiles, clock: MovedClock) -> None:
    """A failed file waits until its retry time, with the reason."""
    await put(files, "one.parquet", b"metrics")
    [file] = await files.due_files(FILE, limit=1)
    await files.postpone_sending(file, "400 no", not_before=clock.now() + 60)
    assert [] == list(await files.due_files(FILE, limit=1))
    clock.move(61)
    [file] = await files.due_files(FILE, limit=1)
    assert "400 no" == file.problem
    # The retry time is too late, because a clock that was ahead has set it.
    await files.postpone_sending(file, "400 no", not_before=clock.now() + 5 * 3600)
    assert 1 == len(await files.due_files(FILE, limit=1))


async def test_recount_reveals_wrong_running_counters(files: ContainerFiles) -> None:
    """A recount of the rows reveals running counters that are wrong."""
    stored = files.rows
    await put(files, "one.parquet", b"metrics")
    await stored.write([], [], [FileCountChange(kind=FILE, term=UPLOADED, n=1)])
    assert {(FILE, UPLOADED): (2, 0)}.items() <= (await stored.file_counters_by_kind_and_state()).items()
    [imbalance] = (await files.recount_accounting()).imbalances
    assert "file: the accounting has uploaded = 2, but the recount has 1" == imbalance


async def test_rows_are_found_by_every_selection(files: ContainerFiles) -> None:
    stored = files.rows
    id = await put(files, "one.parquet", b"metrics")
    file = await stored.find(id)
    await stored.wait_until_durable()  # after this call, the write is final
    assert {"one.parquet": file} == await stored.files_by_reference(FILE, CLUSTER, ["one.parquet", "other"])
    found = {
        which: await stored.select_files(which, kind=FILE, now=1e12, limit=9)
        for which in container_rows.SELECTIONS
    }
    assert {container_rows.DUE: [file], container_rows.UNSENT: [file]} == {
        which: list(rows) for which, rows in found.items() if rows
    }
    assert file is not None
    for since, shown in ((file.uploaded_at or 0.0, [file]), (file.announced_at + HOUR, [])):
        assert shown == list(await stored.select_files(container_rows.READABLE, now=since, limit=9))
    assert {(FILE, UPLOADED): 1} == await stored.counts_by_state()
    held = ContainerFileSums(identity=CLUSTER, key="agent", open=1, bytes=7, waiting_bytes=7)
    assert [held] == await stored.file_sums_per_cluster_and_key()
    waiting = WaitingFiles(files=1, bytes=7, oldest=file.uploaded_at)
    assert waiting == await stored.waiting_files() == await files.waiting_files()
    [cluster] = await stored.cluster_files()
    assert cluster.identity == CLUSTER
    assert cluster.waiting == 1
    assert cluster.bytes == 7
    assert [cluster] == list(await files.cluster_files())
    query = ListQuery(sort=SortField("announced_at"), order=ASCENDING, identity="id", limit=5)
    assert [file] == (await stored.page(query)).rows == (await files.page(query)).rows
    await files.mark_delivered([file])
    assert [replace(held, open=0, waiting_bytes=0)] == await stored.file_sums_per_cluster_and_key()
    spent = {
        key: await stored.select_files(container_rows.SPENT, now=1e12, key=key, limit=9)
        for key in ("", "agent", "x")
    }
    assert {"": 1, "agent": 1, "x": 0} == {key: len(found) for key, found in spent.items()}


async def test_flushed_bytes_without_a_row_wait_again_after_a_kill(tmp_path: Path, clock: MovedClock) -> None:
    """
    After a kill, flushed bytes wait for delivery again. Drafts, and bytes of finished files, are deleted.
    """
    options = StorageOptions(directory=tmp_path, settings=SpoolSettings(hold=0), clock=clock)
    storage = await open_storage(options, engine="sqlite")
    files = storage.container_files
    lost, kept = await put(files, "lost", b"lost metrics"), await put(files, "kept", b"kept metrics")
    row = await files.rows.find(lost)
    assert row is not None
    await files.rows.write([], [row], [FileCountChange(kind=FILE, term=UPLOADED, n=-1)])
    await files.rows.write([], [], [FileCountChange(kind=FILE, term=REFERENCES, n=-1)])
    directory = tmp_path / "container-files"
    (directory / ("f" * 32)).write_bytes(b"no head\nand no row")
    (directory / f"{'e' * 32}.1.part").write_bytes(b"half")
    await storage.close()

    storage = await open_storage(options, engine="sqlite")
    files = storage.container_files
    due = {one.id: one for one in await files.due_files(FILE, limit=10)}
    assert {lost, kept} == set(due)
    assert due[lost].reference == "lost"
    assert row.sha256 == due[lost].sha256
    assert await content(files, lost) == b"lost metrics"
    assert [] == list(directory.glob("*.part"))
    assert await balanced(files)
    await storage.close()


async def test_a_backup_holds_the_files_that_wait(tmp_path: Path, clock: MovedClock) -> None:
    """A backup includes container files that wait: after a restore they wait with their bytes."""
    options = StorageOptions(directory=tmp_path / "data", settings=SpoolSettings(hold=0), clock=clock)
    storage = await open_storage(options, engine="sqlite")
    id = await put(storage.container_files, "one.parquet", b"metrics")
    backup = tmp_path / "backup"
    await backups.back_up(storage.copy, backup, version="1", made_at="now", records={})
    await storage.close()

    manifest = backups.read_checked_manifest(backup)
    restored = tmp_path / "restored"
    backups.flush_and_rename_draft(backups.unpack_backup(backup, manifest, restored), restored)
    storage = await open_storage(replace(options, directory=restored), engine="sqlite")
    files = storage.container_files
    assert [id] == [file.id for file in await files.due_files(FILE, limit=10)]
    assert await content(files, id) == b"metrics"
    assert await balanced(files) is True
    await storage.close()
