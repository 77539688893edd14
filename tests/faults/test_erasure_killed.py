"""
kill -9 in the middle of an erasure, on each engine: after the next start, no byte of the name is left in files or rows.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.devices.states import device_revoker
from spool.clock import SystemClock
from spool.engines import POSTGRES, SQLITE, open_storage
from spool.erasing import continue_due_erasures, erase_from_storage
from spool.erasure import new_erasure
from spool.identity import RecordIdentity
from spool.ledger.ledger import Ledger
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.persons import LinkedPerson, PersonTable
from spool.settings import SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions
from tests.integration.receivers.test_second_names import rows_of
from tests.spool.ledger_log import call
from tests.spool.postgres_cluster import Schema
from tests.stored_files import contents_of

NAME, OTHER = "canary-login-7q", "canary-uuid-7q"
ROOT = Actor("root@example.com", "local")
STEPS = {
    "rename": (Ledger, "rename_people"),
    "overwrite the registry": (Registry, "overwrite_deleted_data"),
    "overwrite the totals": (Ledger, "overwrite_deleted_data"),
    "note": (PersonTable, "store_finished_renaming"),
}


@asynccontextmanager
async def opened(directory: Path, schema: Schema | None) -> AsyncIterator[tuple[Storage, Registry]]:
    stored = StorageSettings() if schema is None else schema.settings(directory)
    options = StorageOptions(
        settings=SpoolSettings(hold=0), clock=SystemClock(), directory=directory, storage=stored
    )
    storage = await open_storage(options, engine=stored.engine)
    assert storage.registry is not None
    try:
        yield storage, storage.registry
    finally:
        await storage.close()


async def erase_until(directory: Path, step: str, schema: Schema | None) -> None:
    """Store calls and links of a person, erase the person, and be killed at a step."""
    async with opened(directory, schema) as (storage, registry):
        start = int(SystemClock().now() - 3600) * NS
        records = [
            call(id=bytes([number]) * 16, user=user, start_time=start)
            for number, user in enumerate((NAME, OTHER, "bob") * 20, start=1)
        ]
        identities = [RecordIdentity(record.id) for record in records]
        submission = Submission(topic=AI_TELEMETRY, received=60, records=records, identities=identities)
        await storage.log.append_submission(submission)
        await storage.ledger.catch_up(storage.log)
        await registry.persons.link_names([LinkedPerson(names=(NAME, OTHER))], max_names=9, actor=ROOT)
        owner, method = STEPS[step]
        setattr(owner, method, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        erasure = new_erasure(map(registry.people.erasure_digest, (NAME, OTHER)), SystemClock().now())
        await erase_from_storage(storage, erasure, revoke_device=device_revoker(""), actor=ROOT)


@pytest.fixture(params=[SQLITE, POSTGRES])
def schema(request: pytest.FixtureRequest) -> Schema | None:
    if request.param == SQLITE:
        return None
    made: Schema = request.getfixturevalue("new_schema")()
    return made


@pytest.mark.proof
@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_erasure_is_finished_at_the_next_start(
    tmp_path: Path, schema: Schema | None, step: str
) -> None:
    program = (
        f"import asyncio, pathlib; from {__name__} import Schema, erase_until; "
        f"asyncio.run(erase_until(pathlib.Path({str(tmp_path)!r}), {step!r}, {schema!r}))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert -signal.SIGKILL == await process.wait()
    async with opened(tmp_path, schema) as (storage, registry):
        assert 1 == await continue_due_erasures(storage, SystemClock(), device_revoker(""))
        assert 0 == await continue_due_erasures(storage, SystemClock(), device_revoker(""))
        names = {
            getattr(record, "user", "")
            for entry in await storage.log.read(AI_TELEMETRY, 1, 60, includes_open_records=True)
            for record in entry.records
        }
        [erasure] = registry.persons.erasures
        assert {"bob", *erasure.names.values()} == names
    contents = [*contents_of(tmp_path).values(), *(() if schema is None else rows_of(schema))]
    assert [] == [found for found in contents if NAME.encode() in found or OTHER.encode() in found]
