"""
A fictitious next release: this release's packages with additions to the shared storage.

Its migration adds a column and a table. Its records and the terms of a submission have one more field, which
later reports fill in.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spool.postgres.migrations import VERSION
from tests.acceptance.conftest import ROOT

RELEASE, NEXT_VERSION = "99.0.0", VERSION + 1
COMMAND: Sequence[str] = (sys.executable, "-m", "gateway")

NEXT_SQL = """
ALTER TABLE {schema}.commits ADD COLUMN release text;
CREATE TABLE {schema}.releases (release text PRIMARY KEY, at float8 NOT NULL);
"""
CHANGES: Mapping[str, Sequence[tuple[str, str]]] = {
    "spool/postgres/migrations.py": [
        (
            "VERSION = FIRST + len(VERSIONS)",
            "VERSIONS = (*VERSIONS, Migration(files=('releases.sql',)))\nVERSION = FIRST + len(VERSIONS)",
        )
    ],
    "spool/postgres/log/queries.py": [
        ("terms, ids, found)", "terms, ids, found, release)"),
        ("%(ids)s, %(found)s)", f"%(ids)s, %(found)s, '{RELEASE}')"),
    ],
    "spool/record.py": [
        ("\n\nclass UsageMetric(", "    release: str | None = None\n\n\nclass UsageMetric("),
        ('"parent_run", "ancestors",\n)', '"parent_run", "ancestors", "release",\n)'),
    ],
    "spool/log/accounting.py": [
        ("    bridged_late: int = 0\n", "    bridged_late: int = 0\n    release: str = ''\n")
    ],
    "gateway/normalise/otlp/spans/reader.py": [
        ("        own = call.own_id\n", f"        record.release = '{RELEASE}'\n        own = call.own_id\n")
    ],
}


def make_next_release(folder: Path) -> dict[str, str]:
    """Write the packages of the next release; return the environment of its processes."""
    for package in ("exporters", "gateway", "spool"):
        shutil.copytree(ROOT / package, folder / package)
    for name, changes in CHANGES.items():
        text = (folder / name).read_text()
        for before, after in changes:
            assert text.count(before) == 1, f"{name} has not once: {before}"
            text = text.replace(before, after)
        (folder / name).write_text(text)
    (folder / "spool/postgres/schema/releases.sql").write_text(NEXT_SQL)
    about = folder / f"tollhouse-{RELEASE}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tollhouse\nVersion: {RELEASE}\n")
    return {"PYTHONPATH": str(folder)}
