"""
One of several processes that upload calls of one PostgreSQL to an object store: `gateway DATA
ADDRESS SECRET BATCH`.

DATA holds the storage settings. The process ends when no call waits, and prints its accounting.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from spool.settings import StorageSettings
from tests.integration.lake.lakes import opened
from tests.integration.lake.s3 import BUCKET
from tests.spool.postgres_cluster import Schema


def storage_of(data: Path, schema: Schema) -> StorageSettings:
    """Return the storage settings of a node, and write the node's id into its directory."""
    data.mkdir(exist_ok=True)
    (data / "schema").write_text(json.dumps([schema.dsn, schema.name]))
    return schema.settings(data)


async def main(data: Path, address: str, secret: Path, batch: int) -> None:
    dsn, name = json.loads((data / "schema").read_text())
    storage = Schema(dsn=dsn, name=name).settings(data)
    settings = {"type": "s3", "path": None, "url": f"s3://{BUCKET}/run", "endpoint": address}
    async with opened(data, engine=storage) as house:
        async with house.forwarding(**settings, secret_file=secret, batch_records=batch):
            while (await house.state()).queued:  # noqa: ASYNC110 - the spool tells nobody of routes
                await asyncio.sleep(0.05)
        terms = await house.terms()
    print(json.dumps({name: n for name, n in terms.items() if n > 0}), flush=True)


if __name__ == "__main__":
    data, address, secret, batch = sys.argv[1:]
    asyncio.run(main(Path(data), address, Path(secret), int(batch)))
