"""
Writes the facts of a random log for several gateways, until all of it is in files. It may be killed:
python -m tests.spool.postgres.writing_facts SEED ENTRIES DSN SCHEMA FOLDER
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from spool.ledger.files.writer import FactWriter
from spool.postgres.database import Database
from spool.postgres.fact_files import PostgresFactStore
from tests.spool.ledger.files.histories import LISTED, opened_prices
from tests.spool.ledger.files.writing import HASHER, log_of, write_all


def open_shared(
    database: Database,
    loop: asyncio.AbstractEventLoop,
    folder: Path,
    *,
    cache: int | None = None,
    kept_s: float = 600,
) -> FactWriter:
    store = PostgresFactStore(database, loop, kept_s=kept_s)
    return FactWriter(folder, HASHER, opened_prices, listed=LISTED, store=store, cache=cache)


async def main() -> None:
    seed, entries = map(int, sys.argv[1:3])
    database, folder = Database(sys.argv[3], schema=sys.argv[4]), Path(sys.argv[5])
    loop = asyncio.get_running_loop()

    def write() -> None:
        write_all(open_shared(database, loop, folder), log_of(seed, entries=entries), random.Random())

    await asyncio.to_thread(write)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
