"""`tollhouse lake verify` finds missing, damaged, duplicate and foreign data, and nothing in a sound lake."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from exporters.lake import manifest
from exporters.lake.file_checks import footer_difference
from exporters.lake.formats import PARQUET
from exporters.lake.stores import FolderStore, StoredObject
from exporters.lake.verification import (
    DATA,
    FOOTERS,
    LISTING,
    DateRange,
    VerifiedLake,
    accounting_difference,
    read_manifests,
    verify_files,
)
from exporters.lake.views.statements import view_statements
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from spool.record import NS, Correction
from tests.exporters.spools import StoppedClock, call, calls, record_id
from tests.integration.lake.lakes import ROUTE, configured, opened


async def fill(directory: Path) -> None:
    async with opened(directory / "data") as house, house.forwarding(path=directory / "lake"):
        await house.add(calls(1, 30, cost="0.1", cost_source="reported"))
        await house.until(queued=0)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Land three deliveries of ten records."""
    directory = tmp_path_factory.mktemp("filled")
    asyncio.run(fill(directory))
    return directory / "lake"


@pytest.fixture
def lake(filled: Path, tmp_path: Path) -> Path:
    """Return a copy of the lake for one test, with a configuration."""
    shutil.copytree(filled, tmp_path / "lake")
    configured(tmp_path)
    return tmp_path / "lake"


def files(lake: Path) -> list[Path]:
    return sorted(lake.glob("ai_telemetry/v1/*/*.parquet"))


def manifests(lake: Path) -> list[Path]:
    return sorted(lake.glob("_manifest/*/*/*.json"))


def flip(path: Path, place: int) -> None:
    body = bytearray(path.read_bytes())
    body[place] ^= 1
    path.write_bytes(body)


def _twice(lake: Path) -> None:
    second = manifests(lake)[1]
    made = json.loads(second.read_bytes())
    made["first"] -= 1
    name = f"{made['first']:012d}-{made['last']:012d}.json"
    second.with_name(name).write_text(json.dumps(made))


BREAK: dict[str, tuple[Callable[[Path], object], str, list[str]]] = {
    "nothing": (lambda lake: None, "--data", []),
    "a file is deleted": (lambda lake: files(lake)[1].unlink(), "", ["missing"]),
    "a file is cut": (lambda lake: files(lake)[1].write_bytes(files(lake)[1].read_bytes()[:-9]), "", ["size"]),
    "a bit of data": (lambda lake: flip(files(lake)[1], 100), "--data", ["content"]),
    "a bit of the end": (lambda lake: flip(files(lake)[1], -1), "--footers", ["content"]),
    "a file is copied": (lambda lake: shutil.copy(files(lake)[0], f"{files(lake)[0]}.parquet"), "", ["foreign"]),
    "a manifest is deleted": (lambda lake: manifests(lake)[1].unlink(), "", ["content", "hole", "foreign"]),
    "a manifest is changed": (lambda lake: flip(manifests(lake)[0], -1), "", ["content", "content", "foreign"]),
    "a range is there twice": (_twice, "", ["overlap", "overlap"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAK)
def test_what_differs_has_a_name(lake: Path, name: str) -> None:
    """
    If a lake differs from its accounting, the command ends with exit code 1 and the name of each difference.
    For a sound lake it ends with 0 and the sums.
    """
    damage, option, expected = BREAK[name]
    damage(lake)
    words = [
        "verify",
        "--config",
        str(lake.parent / "tollhouse.toml"),
        "--json",
        *([option] if option else []),
    ]
    result = CliRunner().invoke(command, words)
    found = json.loads(result.stdout)
    assert expected == [each["kind"] for each in found["differences"]], found
    assert (1 if expected else 0) == result.exit_code
    if not expected:
        assert (3, 3, 30, "3") == tuple(found[name] for name in ("deliveries", "files", "rows", "spend"))


@pytest.mark.parametrize(("share", "read"), [("100%", 3), ("67%", 2), ("0.001%", 0)])
def test_a_sample_of_the_files_is_read_whole(lake: Path, share: str, read: int) -> None:
    """
    A sample of the files is read completely. It is spread evenly over all files. The footers of all
    files are compared.
    """
    config = str(lake.parent / "tollhouse.toml")
    words = ["verify", "--config", config, "--data", "--without-books", "--json"]
    found = json.loads(CliRunner().invoke(command, [*words, "--sample", share]).stdout)
    assert found["files"] == 3
    assert found["read"] in (read, read + (share == "67%"))
    assert 3 == json.loads(CliRunner().invoke(command, words).stdout)["read"]
    flip(files(lake)[1], -1)
    assert 1 == CliRunner().invoke(command, [*words, "--sample", share]).exit_code


def test_a_sample_is_a_share_of_what_is_read(lake: Path) -> None:
    """Zero, more than 100 %, and a sample without reading files are usage errors."""
    config = str(lake.parent / "tollhouse.toml")
    for share in ("0%", "101%", "5"):
        result = CliRunner().invoke(command, ["verify", "--config", config, "--data", "--sample", share])
        assert 2 == result.exit_code and "up to 100%, such as 5%" in result.output
    result = CliRunner().invoke(command, ["verify", "--config", config, "--sample", "5%"])
    assert result.exit_code == 2
    assert result.stderr == "tollhouse: --sample needs --data\n"


def test_manifests_are_printed_as_one_list(lake: Path) -> None:
    """
    The manifests of a month are printed as one list, which has only the deliveries of this month, for an auditor.
    """
    config = str(lake.parent / "tollhouse.toml")
    all_of_them = json.loads(CliRunner().invoke(command, ["manifest", "--config", config]).stdout)
    assert [1, 11, 21] == [each["first"] for each in all_of_them]
    month = all_of_them[0]["files"][0]["date"][:7]
    assert all_of_them == json.loads(
        CliRunner().invoke(command, ["manifest", "--config", config, "--month", month]).stdout
    )
    assert [] == json.loads(
        CliRunner().invoke(command, ["manifest", "--config", config, "--month", "1999-01"]).stdout
    )


def test_the_views_are_read(lake: Path) -> None:
    """The views that `lake sql` prints run, and add up to the spend in the totals."""
    printed = CliRunner().invoke(command, ["sql", "--config", str(lake.parent / "tollhouse.toml")]).stdout
    assert printed == view_statements("duckdb", DestinationSettings(type="file", path=lake))
    connection = duckdb.connect()
    connection.execute(printed)
    for view in ("lake", "once", "spend"):
        assert [(30, Decimal(3))] == connection.execute(f"SELECT count(*), sum(spend) FROM {view}").fetchall()


@pytest.mark.parametrize("format", ["parquet", "ndjson"])
def test_the_views_add_corrections_to_calls(tmp_path: Path, format: str) -> None:
    """
    The views add corrections to calls: a call shows its current values, a day includes changes of its calls, and
    late rows are shown.
    """
    paid = {"cost": "0.1", "cost_source": "reported", "team": "search"}
    first, second = (call(n, start_time=FIRST_DAY, **paid) for n in (1, 2))
    correction = Correction(
        id=record_id(3),
        source="test",
        corrects=first.id,
        before=first,
        after=call(1, start_time=FIRST_DAY, **{**paid, "cost": "0.3"}),
        reason="final_cost",
        known_at=FIRST_DAY + 2 * DAY_NS,
        start_time=FIRST_DAY,
    )

    async def land() -> None:
        clock = StoppedClock(FIRST_DAY / NS + 60)
        async with (
            opened(tmp_path / "data", clock) as house,
            house.forwarding(path=tmp_path / "lake", format=format),
        ):
            await house.add([first, second, correction])
            await house.until(queued=0)

    asyncio.run(land())
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    connection.execute(
        view_statements("duckdb", DestinationSettings(type="file", path=tmp_path / "lake", format=format))
    )

    def rows(text: str) -> list[object]:
        return list(connection.execute(text).fetchall())

    day = datetime.fromtimestamp(FIRST_DAY // NS, UTC).date()
    assert [(Decimal("0.1"), 0), (Decimal("0.3"), 1)] == rows(
        "SELECT spend, corrections FROM calls ORDER BY spend"
    )
    assert [(day, 2, Decimal("0.4"))] == rows("SELECT day, calls, spend FROM daily")
    assert [(day, "search", None, 2, Decimal("0.4"))] == rows(
        'SELECT day, team, "user", calls, spend FROM by_owner'
    )
    assert [("correction", day + timedelta(days=2))] == rows("SELECT kind, known_on FROM late")


async def fill_and_copy(directory: Path) -> None:
    """Land three deliveries. `copy` has the data after two of them."""
    async with opened(directory / "data") as house, house.forwarding(path=directory / "lake"):
        await house.add(calls(1, 20))
        await house.until(queued=0)
    shutil.copytree(directory / "data", directory / "copy")
    async with opened(directory / "data") as house, house.forwarding(path=directory / "lake"):
        await house.add(calls(21, 30))
        await house.until(queued=0)


def test_manifests_are_compared_with_the_accounting(tmp_path: Path) -> None:
    """
    If the lake has more or fewer records than its accounting states, this is a difference, provided that the
    accounting is available.
    """
    asyncio.run(fill_and_copy(tmp_path))

    def kinds(data: str, *words: str) -> list[tuple[str, str]]:
        config = tmp_path / f"{data}.toml"
        lake = f'[[destinations]]\nname = "lake"\ntype = "file"\npath = "{tmp_path}/lake"\n'
        config.write_text(f'data_dir = "{tmp_path}/{data}"\n{lake}')
        result = CliRunner().invoke(command, ["verify", "--config", str(config), "--json", *words])
        found = json.loads(result.stdout)["differences"]
        assert (1 if found else 0) == result.exit_code, result.output
        return [(each["kind"], each["name"]) for each in found]

    assert [] == kinds("data")
    assert [("foreign", ROUTE)] == kinds("copy")
    manifests(tmp_path / "lake")[-1].unlink()
    files(tmp_path / "lake")[-1].unlink()
    assert [("missing", ROUTE)] == kinds("data")
    assert [] == kinds("data", "--without-books")
    assert [] == kinds("nowhere")


def test_damaged_numbers_are_in_both_sums() -> None:
    """A number without a record counts as damaged in the manifest and in the accounting, so it is no difference."""
    found = VerifiedLake(
        deliveries=1, files=1, bytes=1, rows=8, records=8, damaged=2, calls=8, spend="0", differences=[]
    )
    same = {"delivered": 8, "damaged": 2, "before_start": 5}
    assert accounting_difference(found, ROUTE, same, same) is None
    fewer, more = {"delivered": 8}, {"delivered": 8, "damaged": 3}
    assert accounting_difference(found, ROUTE, fewer, more) is None, "it landed while the manifests were read"
    missing, foreign = (
        accounting_difference(found, ROUTE, more, more),
        accounting_difference(found, ROUTE, fewer, fewer),
    )
    assert missing is not None and foreign is not None
    assert missing.kind == "missing"
    assert foreign.kind == "foreign"


DAY_NS = 24 * 3600 * NS
FIRST_DAY = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * NS


async def fill_days(directory: Path) -> None:
    """Land three deliveries of ten records. Each has five records of each of two days."""
    async with opened(directory / "data") as house, house.forwarding(path=directory / "lake"):
        for first in (1, 11, 21):
            day = FIRST_DAY + (first - 1) // 10 * DAY_NS
            next_day = calls(first + 5, first + 9, start_time=day + DAY_NS)
            await house.add([*calls(first, first + 4, start_time=day), *next_day])
            await house.until(queued=0)


async def test_dates_limit_what_is_looked_at(tmp_path: Path) -> None:
    """
    With dates, `lake verify` reports only differences of files of these dates. The chain of manifests is always
    checked completely.
    """
    await fill_days(tmp_path)
    lake = tmp_path / "lake"
    store = FolderStore(lake)
    (lake / "ai_telemetry/v1/date=2026-11-20/strange.parquet").write_bytes(b"strange")
    (lake / "ai_telemetry/v1/strange.parquet").write_bytes(b"strange")
    files(lake)[-1].unlink()  # delete the file of 2026-11-23

    async def verified(*dates: str) -> tuple[int, int, int, list[str]]:
        manifests = read_manifests(store, "lake", tmp_path)
        found = await verify_files(store, manifests, level=LISTING, scratch=tmp_path, dates=DateRange(*dates))
        return found.deliveries, found.files, found.rows, [each.kind for each in found.differences]

    assert (3, 6, 30, ["missing", "foreign", "foreign"]) == await verified()
    assert (2, 2, 10, []) == await verified("2026-11-21", "2026-11-21")
    assert (1, 1, 5, ["foreign"]) == await verified("", "2026-11-20")
    assert (1, 1, 5, ["missing"]) == await verified("2026-11-23", "")


def test_what_a_rule_of_the_store_took_is_no_failure(tmp_path: Path) -> None:
    """
    Files before the given date may have been deleted by a rule of the store. If they are missing, they are reported
    as expired, later ones as missing.
    """
    asyncio.run(fill_days(tmp_path))
    config = configured(tmp_path)
    first, *_, last = files(tmp_path / "lake")
    first.unlink()

    def found(*words: str) -> tuple[int, list[str]]:
        result = CliRunner().invoke(
            command, ["verify", "--without-books", "--json", "--config", str(config), *words]
        )
        return result.exit_code, [each["kind"] for each in json.loads(result.stdout)["differences"]]

    day = first.parent.name.removeprefix("date=")
    assert (1, ["missing"]) == found()
    assert (1, ["missing"]) == found("--expired-before", day)
    assert (0, ["expired_by_rule"]) == found("--expired-before", "2026-11-22")
    last.unlink()
    assert (1, ["expired_by_rule", "missing"]) == found("--expired-before", "2026-11-22")


class CountingFolder(FolderStore):
    asked: Counter[str]

    async def object_size(self, name: str) -> int | None:
        self.asked["size"] += 1
        return await super().object_size(name)

    async def fetch(self, name: str, path: Path) -> None:
        self.asked["fetch"] += 1
        await super().fetch(name, path)

    def list_objects(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        self.asked["names"] += 1
        return super().list_objects(prefix, after=after)


async def test_verification_sends_no_request_for_a_single_file(lake: Path, tmp_path: Path) -> None:
    """
    To verify a lake, one list of files, one list of manifests and one read per manifest suffice. No request is sent
    for a single file.
    """
    store = CountingFolder(lake)
    store.asked = Counter()
    found = await verify_files(
        store, read_manifests(store, "lake", tmp_path), level=LISTING, scratch=tmp_path
    )
    assert [] == found.differences
    assert {"names": 2, "fetch": 3} == store.asked


def test_the_end_of_a_file_says_its_rows_and_numbers(filled: Path) -> None:
    """The Parquet library's own statistics are compared, not only Tollhouse's metadata."""
    path = files(filled)[1]
    made = manifest.decode_manifest(manifests(filled)[1].read_bytes())
    (file,), end = made.files, path.read_bytes()
    assert footer_difference(PARQUET, end, made, file) is None
    assert "it has 10 rows, but its manifest says 11" == footer_difference(
        PARQUET, end, made, replace(file, rows=11)
    )
    other = path.with_name("other")
    pq.write_table(
        pq.read_table(files(filled)[0]).replace_schema_metadata(pq.read_schema(path).metadata), other
    )
    words = "its numbers are 1 to 10, but its manifest says 11 to 20"
    assert words == footer_difference(PARQUET, other.read_bytes(), made, file)
    other.unlink()


async def test_footers_of_files_are_read_concurrently(filled: Path, tmp_path: Path) -> None:
    """
    To verify a lake, footers of many files are read concurrently. Whole files are read one after the other, because
    they need disk space.
    """

    class Slow(FolderStore):
        asked = most = 0

        async def read_end(self, name: str, size: int, count: int) -> bytes:
            self.asked += 1
            self.most = max(self.asked, self.most)
            await asyncio.sleep(0)
            found = await super().read_end(name, size, count)
            self.asked -= 1
            return found

    for level, most in ((FOOTERS, 3), (DATA, 1)):
        store = Slow(filled)
        found = await verify_files(
            store, read_manifests(store, "lake", tmp_path), level=level, scratch=tmp_path
        )
        assert found.differences == []
        assert store.most == most
