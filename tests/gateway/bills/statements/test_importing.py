"""
Report files: they are recognized, limited in size, and merged if they are parts of one report. They never
cause a crash.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path

import pytest

from gateway.bills.statements.importing import (
    ParsedReport,
    ReportFile,
    ReportReader,
    open_document,
    read_reports,
    report_file_at,
)
from gateway.bills.statements.sources.list import SOURCES
from spool.bounded_reading import MAX_ROW, KnownDigests
from spool.errors import Invalid
from spool.statements import DAY_S
from tests.gateway.bills.statements.test_cases import INPUTS, READ_AT
from tests.rounds import IS_LONG

USAGE = next(path for path in INPUTS if path.parent.name == "openai_usage" and path.suffix == ".json")
CUR = next(path for path in INPUTS if path.parent.name == "aws_cur")


def reports(
    *contents: bytes, source: str | None = None, most: int = 1000, read_at: float = READ_AT
) -> list[ParsedReport]:
    files = [
        ReportFile(name=f"{index}", content=content, read_at=read_at)
        for index, content in enumerate(contents)
    ]
    return read_reports(files, source=source, account=None, max_unpacked_bytes=most)


def test_parts_of_one_report_are_one_statement() -> None:
    """Some sources split their reports into files. A repeated file counts once."""
    head, *lines = CUR.read_bytes().splitlines(keepends=True)
    whole, split = reports(CUR.read_bytes()), reports(head + b"".join(lines[:5]), head + b"".join(lines[5:]))
    assert 1 == len(split)
    assert whole[0].statement is not None
    assert split[0].statement is not None
    assert set(whole[0].statement.rows) == set(split[0].statement.rows)
    [twice] = reports(CUR.read_bytes(), CUR.read_bytes())
    assert twice.statement is not None
    assert whole[0].statement.rows == twice.statement.rows


def test_bucket_in_two_files_is_imported_once() -> None:
    """A bucket that two files contain is imported from one of them, not from both."""
    again = USAGE.read_bytes() + b" "
    assert 2 == len(reports(USAGE.read_bytes(), again))


def test_days_are_open_until_they_have_settled() -> None:
    """The provider's settle time and the statement in the report decide whether a day is still open."""
    first = reports(USAGE.read_bytes())[0].statement
    assert first is not None
    read_at = first.start + DAY_S + SOURCES["openai_usage"].settle_s
    for late, settled in ((0, {True}), (-1, {False})):
        [report] = reports(USAGE.read_bytes(), read_at=read_at + late)
        assert report.statement is not None
        assert settled == {row.settled for row in report.statement.rows}


def test_a_packed_file_is_inflated(tmp_path: Path) -> None:
    """
    A compressed file is limited by its inflated size. The time of the report is at most the
    file's modification time.
    """
    path = tmp_path / "report.csv.gz"
    content = CUR.read_bytes()
    path.write_bytes(gzip.compress(content))
    os.utime(path, (READ_AT, READ_AT))
    opened = report_file_at(path, max_unpacked_bytes=len(content), now=READ_AT + 9.0)
    with opened.open_unpacked() as file:
        assert file.read() == content
        assert float(READ_AT) == opened.read_at
    assert READ_AT - 9 == report_file_at(path, max_unpacked_bytes=len(content), now=READ_AT - 9.0).read_at
    too_large = report_file_at(path, max_unpacked_bytes=len(content) - 1, now=READ_AT)
    with pytest.raises(Invalid, match="max_file_bytes"), too_large.open_unpacked():
        pass


@pytest.mark.parametrize("content", [b"\x1f\x8bnot gzip", None])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """If a report cannot be read, the error names the file."""
    path = tmp_path / "report.gz"
    if content is not None:
        path.write_bytes(content)
    with (
        pytest.raises(Invalid, match=r"report\.gz cannot be read"),
        report_file_at(path, max_unpacked_bytes=1000, now=READ_AT).open_unpacked(),
    ):
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00", b"{", b"[]", b"{}", b"[1]", b"null", b"a,b\n1,2\n", b"\xff\xfe\x00", b"[" * 100_000,
        b'{"data": 5}', b'{"data": [5]}', b'{"data": [{"results": 5}]}', b'{"ResultsByTime"', b"a\x00,b\n",
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(content: bytes) -> None:
    """If a report is of no known source, the error lists the supported sources."""
    with pytest.raises(Invalid):
        reports(content)


def test_what_is_named_is_not_guessed() -> None:
    """A page without data matches no known source, so it is read only if `--source` names the source."""
    empty = b'{"data": [{"start_time": 1785542400, "end_time": 1785628800, "results": []}]}'
    with pytest.raises(Invalid, match="--source"):
        reports(empty)
    [report] = reports(empty, source="openai_usage")
    assert report.statement is not None
    assert report.statement.start == 1785542400
    assert report.statement.end == 1785628800
    assert report.statement.rows == ()
    for wrong in ("openai", "aws_cur"):
        with pytest.raises(Invalid):
            reports(empty, source=wrong)


def test_cells_are_bounded() -> None:
    """A report at the limit is read. One more row is an error that names the setting."""
    [report] = reports(CUR.read_bytes())
    assert report.statement is not None
    cells = len(report.statement.rows)
    assert cells == len(reports(CUR.read_bytes(), most=cells)[0].statement.rows)  # type: ignore[union-attr]
    with pytest.raises(Invalid, match=r"reconciliation\.max_rows"):
        reports(CUR.read_bytes(), most=cells - 1)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_damage_is_never_a_crash(path: Path) -> None:
    """
    A report with a changed byte or a changed JSON value is either read or refused. It never causes a crash.
    """
    chance = random.Random(path.name)
    content = path.read_bytes()
    source = path.parent.name
    for _ in range(150 if IS_LONG else 30):
        position = chance.randrange(len(content))
        damaged = (
            content[:position]
            + bytes([chance.randrange(256)])
            + content[position + 1 + chance.randrange(3) :]
        )
        try:
            reports(damaged, source=source)
        except Invalid:
            continue
    if path.suffix == ".json":
        for swapped in _swapped(json.loads(content), chance):
            try:
                reports(json.dumps(swapped).encode(), source=source)
            except Invalid:
                continue


def _swapped(document: object, chance: random.Random) -> list[object]:
    """Return many copies of the document, each with one value of another type."""
    documents = []
    for _ in range(150):
        copy = json.loads(json.dumps(document))
        at = copy
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = chance.choice(keys)
            if not isinstance(at[key], dict | list) or chance.random() < 0.2:
                at[key] = chance.choice([None, -1, "x", [], {}, [1], True, 1e300, {"a": [2]}, "", "1e999"])
                break
            at = at[key]
        documents.append(copy)
    return documents


def test_rows_outside_the_requested_days_are_not_added() -> None:
    """
    Rows of another day are skipped, and rows of a longer period are listed as problems. Neither is added to
    the requested days.
    """
    source = SOURCES["github_copilot"]
    item = {"product": "Copilot", "sku": "Copilot AI Credits", "unitType": "ai-credits", "netAmount": 3}
    day = 1_785_715_200  # 2026-08-03
    periods: tuple[dict[str, int], ...] = ({"day": 2}, {"day": 3}, {"day": 4}, {})
    reader = ReportReader(source, max_unpacked_bytes=100, asked=(day, day + DAY_S))
    for period in periods:
        page = {"timePeriod": {"year": 2026, "month": 8, **period}, "usageItems": [item]}
        file = ReportFile(name="page", content=json.dumps(page).encode(), read_at=READ_AT)
        reader.read_document_and_count_cells(file, open_document(file))
    report = reader.build_report(account="acme")
    assert report.statement is not None
    assert report.statement.start == day
    assert report.statement.end == day + DAY_S
    assert [(day, Decimal(3))] == [(row.start, row.amount) for row in report.statement.rows]
    assert ["page 1, item 1: the row covers a longer time than was requested"] == list(report.named)


def test_a_month_in_place_of_its_first_day() -> None:
    """
    Some providers ignore the requested day and return the whole month. Then nothing counts for the first day
    of the month.
    """
    page = {"timePeriod": {"year": 2026, "month": 8}, "usageItems": [{"netAmount": 3}]}
    first = 1_785_542_400  # 2026-08-01
    reader = ReportReader(SOURCES["github_copilot"], max_unpacked_bytes=100, asked=(first, first + DAY_S))
    file = ReportFile(name="page", content=json.dumps(page).encode(), read_at=READ_AT)
    reader.read_document_and_count_cells(file, open_document(file))
    report = reader.build_report(account="acme")
    assert ["page 1, item 1: the row covers a longer time than was requested"] == list(report.named)
    assert () == (report.statement.rows if report.statement else ())


@pytest.mark.parametrize("period", [{"month": 0}, {"month": 13}, {"month": 2, "day": 0}, {"month": 2, "day": 30},
                                    {"day": 3}, {"month": 7.5}, {"month": -1}])  # fmt: skip
def test_a_period_that_is_no_time(period: dict[str, object]) -> None:
    """If the period of a report is invalid, it is named as damaged, and nothing is read from the report."""
    page = {"timePeriod": {"year": 2026, **period}, "usageItems": [{"netAmount": 3}]}
    file = ReportFile(name="page", content=json.dumps(page).encode(), read_at=READ_AT)
    [report] = read_reports([file], source=None, account=None, max_unpacked_bytes=100)
    assert report.statement is None
    assert report.damaged == 2
    assert "timePeriod" in report.named[0]


# Rows of these files have an id, or are unique in their bucket and group. In other files, two equal rows may
# both be correct.
WITH_IDS = ("legacy.csv", "cur2.csv")
COUNTED_ONCE = frozenset({
    "anthropic_analytics_costs", "anthropic_analytics_usage", "anthropic_costs", "anthropic_usage", "aws_cost_explorer",
    "cursor_usage_events", "github_copilot", "litellm_spend_logs", "openai_costs", "openai_usage",
    "openai_usage_embeddings", "openrouter_activity",
})  # fmt: skip


def twice(path: Path) -> bytes:
    """Repeat the page or the rows in one file."""
    content = path.read_bytes()
    if path.suffix == ".json":
        return b"[" + content + b"," + content + b"]"
    head, *lines = content.splitlines(keepends=True)
    return content + b"".join([head, *lines] if path.suffix == ".ndjson" else lines)


@pytest.mark.proves("rows that appear twice")
@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_repeated_rows_count_once_or_are_reported(path: Path) -> None:
    """
    Repeated rows count once if the report has an id for each row. Otherwise the number of equal rows is reported.
    """
    [once], [again] = (
        reports(path.read_bytes(), source=path.parent.name),
        reports(twice(path), source=path.parent.name),
    )
    assert once.statement is not None
    assert again.statement is not None
    assert once.repeated == 0
    assert once.equal == 0
    if (path.suffix == ".json" and path.parent.name in COUNTED_ONCE) or path.name in WITH_IDS:
        assert again.repeated > 0 == again.equal
        assert again.repeated == len(again.repeated_named)
        assert set(once.statement.rows) == set(again.statement.rows)
    else:
        assert again.equal > 0 == again.repeated
    [file] = reports(path.read_bytes(), path.read_bytes(), source=path.parent.name)
    assert (f"1: the whole file, {once.read} rows",) == file.repeated_named
    assert once.read == file.repeated > 0


@pytest.mark.proves("rows that appear twice")
@pytest.mark.parametrize("files", [1, 2])
def test_lines_with_an_id_count_once(files: int) -> None:
    """
    Lines with an id count once within a file and across parts of an export. A different line with the same id
    is counted separately.
    """
    head, *lines = CUR.read_text().splitlines()
    first, second = (
        "\n".join(
            [f"identity_line_item_id,{head}", *(f"id{place},{line}" for place, line in enumerate(lines))]
        )
        for _ in range(2)
    )
    second = second.partition("\n")[2] if files == 1 else second + "\n"
    contents = [f"{first}\n{second}".encode()] if files == 1 else [first.encode(), second.encode()]
    [once], [again] = reports(first.encode()), reports(*contents)
    assert once.statement is not None
    assert again.statement is not None
    assert set(once.statement.rows) == set(again.statement.rows)
    assert again.repeated > 0 == again.equal
    one_id = "\n".join([f"identity_line_item_id,{head}", *(f"id,{line}" for line in lines)])
    [one_report] = reports(one_id.encode())
    assert one_report.statement is not None
    assert one_report.repeated == 0
    assert set(once.statement.rows) == set(one_report.statement.rows)


def test_a_large_page_of_the_usual_form_is_read() -> None:
    """The limit on decoded JSON accepts the pages that providers really send."""
    page = json.loads(USAGE.read_bytes())
    [bucket, *_] = page["data"]
    [result, *_] = bucket["results"]
    bucket["results"] = [{**result, "api_key_id": f"key_{index}"} for index in range(32_000)]
    content = json.dumps({**page, "data": [bucket]}).encode()
    assert 11 * 1024**2 < len(content)
    document = open_document(ReportFile(name="page", content=content, read_at=READ_AT))
    assert 32_000 == len(document.root_object()["data"][0]["results"])


def test_json_lines_are_read_one_by_one(tmp_path: Path) -> None:
    """An invalid line of a report is named, even far after the lines that identified the format."""
    path = tmp_path / "lines.json"
    row = {"sku": {"id": "a"}, "usage_start_time": "2026-08-01T00:00:00Z"}
    path.write_text("\n".join([json.dumps(row)] * 1500) + "\n{broken\n")
    file = report_file_at(path, max_unpacked_bytes=10**6, now=READ_AT)
    with pytest.raises(Invalid, match=r"lines\.json is neither JSON nor JSON lines: line 1501"):
        read_reports([file], source=None, account=None, max_unpacked_bytes=10)


def test_a_row_that_does_not_end_is_named(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_bytes(CUR.read_bytes().splitlines(keepends=True)[0] + b"x" * (MAX_ROW + 1))
    file = report_file_at(path, max_unpacked_bytes=10**8, now=READ_AT)
    with pytest.raises(Invalid, match=r"report\.csv: the row at line 2 has more than 1048576 characters"):
        read_reports([file], source=None, account=None, max_unpacked_bytes=10)


def test_digests_are_known_again() -> None:
    """A table of digests finds every digest that was added, even beyond its initial size."""
    digests = [blake2b(str(number).encode(), digest_size=8).digest() for number in range(20_000)]
    known = KnownDigests()
    assert not any(known.add_and_return_whether_known(digest) for digest in digests)
    assert all(known.add_and_return_whether_known(digest) for digest in digests)


@pytest.mark.parametrize(
    "content",
    [
        "ChargePeriodStart,ChargePeriodEnd,ProviderName,ServiceCategory,ServiceName,ChargeCategory,BilledCost,EffectiveCost\n"
        "2026-08-03T00:00:00Z,2026-08-04T00:00:00Z,Microsoft,AI and Machine Learning,Azure OpenAI,Adjustment,5,5\n"
        "2026-08-03T00:00:00Z,2026-08-04T00:00:00Z,Microsoft,AI and Machine Learning,Azure OpenAI,Adjustment,-2,-2\n",
        "Date,ResourceId,MeterCategory,MeterName,UnitOfMeasure,Quantity,CostInBillingCurrency,ChargeType\n"
        "08/03/2026,a/accounts/acme,Azure OpenAI,Balance,1,1,5,Adjustment\n"
        "08/03/2026,a/accounts/acme,Azure OpenAI,Balance,1,1,-2,Adjustment\n",
    ],
    ids=["focus", "azure"],
)
def test_an_adjustment_that_raises_the_cost_is_no_credit(content: str) -> None:
    [report] = reports(content.encode())
    assert report.statement is not None
    assert {"adjustment": 5, "credit": -2} == {row.kind: row.amount for row in report.statement.rows}
