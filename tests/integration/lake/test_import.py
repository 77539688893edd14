"""Older records are imported into a lake from files, each once, next to its deliveries."""

from __future__ import annotations

import asyncio
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from exporters.lake.formats import FORMATS
from exporters.lake.past.importing import LakeImport
from exporters.lake.stores import FolderStore
from exporters.lake.verification import DATA, VerifiedLake, read_manifests, verify_files
from exporters.lake.watch import compare_with_store
from gateway.cli.lake.command import lake as command
from spool.clock import SystemClock
from spool.record import NS, Record, record_to_json
from tests.exporters.spools import call, counter
from tests.integration.lake.lakes import ROUTE, configured, opened, query
from tests.integration.lake.s3 import BUCKET

BEGIN_NS = 1_790_000_000 * NS
PLANTED = "planted words"
TYPED = orjson.dumps({**record_to_json(call(1, start_time=BEGIN_NS)), "input_tokens": "many"})
DAY_NS = 24 * 3600 * NS
PAID: dict[str, Any] = {"cost": "0.1", "cost_source": "reported"}


def older(first: int, last: int, **fields: Any) -> list[Record]:
    """Return records with three calls per day."""
    return [
        call(n, start_time=BEGIN_NS + n // 3 * DAY_NS, **{**PAID, **fields}) for n in range(first, last + 1)
    ]


def record_file(path: Path, records: list[Record]) -> Path:
    rows = [{**record_to_json(each), "prompt": PLANTED} for each in records]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def verified(lake: Path, scratch: Path) -> VerifiedLake:
    scratch.mkdir(exist_ok=True)
    store = FolderStore(lake)
    return asyncio.run(
        verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)
    )


def run(directory: Path, *words: str) -> Result:
    config = configured(directory)
    return CliRunner().invoke(command, ["import", "--config", str(config), *words])


def objects(lake: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def test_records_of_a_file_are_imported_once(tmp_path: Path) -> None:
    """
    Records are imported from a file once: ids that are already in the lake, or twice in the file, are skipped. A
    second run changes nothing, and every proof holds.
    """

    async def fill() -> list[str]:
        async with opened(tmp_path / "data") as house:
            async with house.forwarding(path=tmp_path / "lake"):
                await house.add([*older(0, 3), call(90, **PAID)])
                await house.until(queued=0)
                done = await asyncio.to_thread(run, tmp_path, str(source), "--json")
                assert 0 == done.exit_code, done.output
                [found] = json.loads(done.stdout)["imported"]
                assert found["rows"] == 8
                assert found["known"] == 5
                assert found["left_out"] == 2
            seen = await compare_with_store(FolderStore(tmp_path / "lake"), house.context(), ROUTE)
            assert seen.rows == 13
            assert seen.imported == 8
            return [each.kind for each in seen.differences]

    extra: list[Record] = [counter(30, start_time=BEGIN_NS), call(31), call(32), older(5, 5)[0]]
    source = record_file(tmp_path / "archive.ndjson", [*older(0, 10), *extra])
    assert [] == asyncio.run(fill())
    before = objects(tmp_path / "lake")
    again = run(tmp_path, str(source))
    assert again.exit_code == 0
    assert again.output == "archive.ndjson: 8 rows, 5 already known, 2 left out\n"
    assert before == objects(tmp_path / "lake")
    found = verified(tmp_path / "lake", tmp_path / "scratch")
    assert found.differences == []
    assert found.rows == 13
    assert found.imported == 8
    assert found.calls == 12
    assert PLANTED not in str(query(tmp_path / "lake", "SELECT CAST(lake AS text) FROM lake"))
    assert [(13, 13, 5, Decimal("1.2"))] == query(
        tmp_path / "lake", "SELECT count(*), count(DISTINCT id), count(number), sum(spend) FROM lake"
    )


@pytest.mark.proof
def test_an_import_into_s3(s3: str, tmp_path: Path) -> None:
    """The command writes to an object store like to a folder, and imports nothing twice."""
    (tmp_path / "secret").write_text("testing\ntesting-secret\n")
    there = {"type": "s3", "url": f"s3://{BUCKET}/imported", "endpoint": s3}
    config = configured(tmp_path, secret_file=tmp_path / "secret", **there)

    def done(*words: str) -> Any:
        result = CliRunner().invoke(command, [*words, "--config", str(config), "--json"])
        assert 0 == result.exit_code, result.output
        return json.loads(result.stdout)

    one, other = (record_file(tmp_path / name, older(*span)) for name, span in (("a", (0, 5)), ("b", (3, 8))))
    found = [done("import", str(one), str(other)) for _ in range(2)]
    assert found[0] == found[1]
    assert [(6, 0), (3, 3)] == [(each["rows"], each["known"]) for each in found[0]["imported"]]
    seen = done("verify", "--data", "--without-books")
    assert seen["rows"] == 9
    assert seen["imported"] == 9
    assert seen["differences"] == []


@pytest.mark.parametrize("format", ["parquet", "ndjson"])
def test_import_from_another_lake_has_its_counted_values(tmp_path: Path, format: str) -> None:
    """
    An import from another lake has the values that the ledger of that lake counted, even if that lake left out
    columns.
    """

    async def fill() -> None:
        settings = {"path": tmp_path / "other", "format": format, "leave_out": ("cost", "user")}
        async with opened(tmp_path / "data") as house, house.forwarding(**settings):
            await house.add([*older(0, 8), call(9, shadow=True, **PAID)])
            await house.until(queued=0)

    asyncio.run(fill())
    sources = sorted((tmp_path / "other").glob("ai_telemetry/v1/*/*"))
    done = run(tmp_path, *map(str, sources))
    assert 0 == done.exit_code, done.output
    assert [(10, 9, 9, Decimal("0.9"))] == query(
        tmp_path / "lake", "SELECT count(*), count(*) FILTER (counted), sum(calls), sum(spend) FROM lake"
    )
    assert [] == list(verified(tmp_path / "lake", tmp_path / "scratch").differences)


def test_an_import_that_was_cut_off_ends_as_if_it_was_not(tmp_path: Path) -> None:
    """
    If an import is interrupted, the next run keeps its complete parts, and recognizes files without a manifest.
    Each id then appears once over all parts.
    """
    source = record_file(tmp_path / "archive.ndjson", [*older(0, 10), *older(4, 6)])

    def bring(lake: Path) -> list[int]:
        (tmp_path / "work").mkdir(exist_ok=True)
        work = LakeImport(
            store=FolderStore(lake), clock=SystemClock(), destination="lake", format=FORMATS["parquet"],
            directory=tmp_path / "work", part_rows=5,
        )  # fmt: skip
        return [part.numbers.rows for part in asyncio.run(work.import_file(source))]

    assert [5, 5, 1] == bring(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "lake")
    manifests = sorted((tmp_path / "lake").glob("_manifest/ai_telemetry/import/*.json"))
    for lost in manifests[1:]:
        lost.unlink()
    assert "foreign" in [each.kind for each in verified(tmp_path / "lake", tmp_path / "scratch").differences]
    assert [5, 5, 1] == bring(tmp_path / "lake")
    assert [] == list(verified(tmp_path / "lake", tmp_path / "scratch").differences)
    assert sorted(path.name for path in (tmp_path / "whole").rglob("*")) == sorted(
        path.name for path in (tmp_path / "lake").rglob("*")
    )


@pytest.mark.parametrize(
    "line", [b"[]", b"{", b'{"kind": "inference", "id": "12"}', b'{"kind": "other"}', TYPED]
)
def test_what_is_no_record_is_named(tmp_path: Path, line: bytes) -> None:
    """
    If a line of the file is no record, the error names the line without its content. Nothing of that
    part is written.
    """
    source = record_file(tmp_path / "archive.ndjson", older(0, 1))
    source.write_bytes(source.read_bytes() + line + b"\n")
    done = run(tmp_path, str(source))
    assert 1 == done.exit_code
    assert " 3 is not a record of AI telemetry" in done.output
    assert {} == objects(tmp_path / "lake")


def test_a_damaged_import_shows(tmp_path: Path) -> None:
    """A missing or changed file of an import is reported like one of a delivery."""
    assert 0 == run(tmp_path, str(record_file(tmp_path / "archive.ndjson", older(0, 5)))).exit_code
    first, second = sorted((tmp_path / "lake").glob("ai_telemetry/v1/*/*"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    found = verified(tmp_path / "lake", tmp_path / "scratch")
    assert ["missing", "content"] == [each.kind for each in found.differences]
