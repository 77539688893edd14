"""`tollhouse query`: a question in SQL over the files of a lake, in a process that can read nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.lake import query as command
from spool.identity import Identity
from spool.log.values import Submission
from spool.record import NS, USAGE_EVENTS, UsageEvent
from tests.exporters.spools import StoppedClock, call, record_id
from tests.integration.lake.lakes import House, opened
from tests.integration.lake.s3 import BUCKET, s3_server

AT_NS = 1_790_000_000 * NS  # 2026-09-21
DAY_NS = 24 * 3600 * NS
SPENT = "SELECT team, sum(spend) AS spend, sum(calls) AS calls FROM spend GROUP BY team ORDER BY team"


async def land(house: House, **fields: object) -> None:
    """Three calls of one day and two of the next; the first team has a name that would be a formula."""
    paid = {"cost": "0.000000000000000000000000001", "cost_source": "reported"}
    await house.add([call(n, start_time=AT_NS, team="=a", **paid) for n in (1, 2, 3)])
    await house.add([call(n, start_time=AT_NS + DAY_NS, team="b", **paid) for n in (4, 5)])
    async with house.forwarding(**fields):
        await house.until_all_is_sent()


def configured(directory: Path, lines: str) -> Path:
    file = directory / "tollhouse.toml"
    file.write_text(f'data_dir = "{directory}/data"\n[[destinations]]\nname = "lake"\n{lines}\n')
    return file


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a lake in a folder."""
    directory = tmp_path_factory.mktemp("query")

    async def run() -> None:
        async with opened(directory / "data", StoppedClock(AT_NS / NS + 90_000)) as house:
            await land(house, path=directory / "lake")

    asyncio.run(run())
    return configured(directory, f'type = "file"\npath = "{directory}/lake"')


def ask(config: Path, *words: str) -> Result:
    return CliRunner().invoke(command.query, [*words, "--config", str(config)])


def found(config: Path, *words: str) -> list[list[object]]:
    result = ask(config, *words, "--json")
    assert 0 == result.exit_code, result.output
    rows: list[list[object]] = json.loads(result.stdout)["rows"]
    return rows


def test_money_has_all_its_digits(config: Path) -> None:
    """Amounts are texts with 27 decimals, counts are numbers, and the order is that of the question."""
    assert [
        ["=a", "0.000000000000000000000000003", 3],
        ["b", "0.000000000000000000000000002", 2],
    ] == found(config, SPENT)


def test_a_table_says_what_was_read(config: Path) -> None:
    """Without an option a table is printed, and the files and bytes on standard error."""
    result = ask(config, SPENT)
    assert 0 == result.exit_code, result.output
    assert ["TEAM", "SPEND", "CALLS"] == result.stdout.splitlines()[0].split()
    assert "=a    0.000000000000000000000000003  3" == result.stdout.splitlines()[1]
    assert "2 rows of 2 files of 0.0 MiB\n" == result.stderr


def test_cells_of_csv_are_no_formulas(config: Path) -> None:
    """What a spreadsheet would run has an apostrophe before it, as in every other CSV."""
    assert ["team,calls", "'=a,3", "b,2"] == ask(
        config, "SELECT team, sum(calls) AS calls FROM lake GROUP BY team ORDER BY team", "--csv"
    ).stdout.splitlines()


def test_dates_cut_what_is_read(config: Path) -> None:
    """Files of other dates are not opened; dates of which there are none are said."""
    count = 'SELECT count(*), min("at") FROM lake -- all of it'
    assert [[5, "2026-09-21 14:13:20+00"]] == found(config, count)
    assert [[2, "2026-09-22 14:13:20+00"]] == found(config, count, "--from", "2026-09-22")
    assert [[3, "2026-09-21 14:13:20+00"]] == found(config, count, "--to", "2026-09-21")
    result = ask(config, count, "--from", "2026-10-01")
    assert (1, "tollhouse: the lake has no files of these dates that the question asks for\n") == (
        result.exit_code,
        result.stderr,
    )


def test_rows_beyond_the_bound_are_not_shown(config: Path) -> None:
    """The bound is a number of rows: at it nothing is said, one row more is said."""
    rows = "SELECT number FROM lake ORDER BY number"
    assert "5 rows of 2 files of 0.0 MiB\n" == ask(config, rows, "--max-rows", "5").stderr
    less = ask(config, rows, "--max-rows", "4")
    assert "4 rows of 2 files of 0.0 MiB, and there are more: see --max-rows\n" == less.stderr
    assert 5 == len(less.stdout.splitlines())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT nothing FROM lake", 'column "nothing" not found'),
        ("SELEKT 1 FROM lake", "syntax error"),
        ("SELECT 1 FROM lake; SELECT 2", "ask one question"),
        ("COPY (SELECT * FROM lake) TO '{place}/lake/new.parquet'", "ask one question"),
        ("DROP VIEW lake", "ask one question"),
        ("SET threads = 64; FROM lake", "ask one question"),
        ("FROM lake, read_csv('/etc/hostname')", "disabled by configuration"),
        ("FROM lake, read_csv('{place}/tollhouse.toml')", "disabled by configuration"),
        ("FROM lake, read_csv('https://example.com/x.csv')", "disabled by configuration"),
        ("FROM lake, read_csv('{place}/lake/../tollhouse.toml')", "disabled by configuration"),
        ("FROM lake, load_aws_credentials()", "Error"),
    ],
)
def test_a_question_reads_the_lake_alone(text: str, words: str, config: Path) -> None:
    """Nothing is written, no other file is read, no extension is loaded; the words are those of DuckDB."""
    before = sorted(path for path in config.parent.rglob("*") if "lake" in path.parts)
    result = ask(config, text.format(place=config.parent))
    assert 1 == result.exit_code and words in result.stderr, result.output
    assert before == sorted(path for path in config.parent.rglob("*") if "lake" in path.parts)


def test_a_question_takes_no_longer_than_it_may(config: Path) -> None:
    """The process is ended, and the time that may be longer is named."""
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, lake"
    result = ask(config, endless, "--timeout", "1s")
    assert (1, True) == (result.exit_code, "more than 1 s: ask for fewer dates" in result.stderr)


def test_memory_and_disk_have_bounds(config: Path) -> None:
    """What fits in neither ends the question, in DuckDB's words."""
    large = "SELECT count(DISTINCT repeat(a.range::VARCHAR, 50)) FROM range(3000000) a, lake WHERE number = 1"
    result = ask(config, large, "--memory", "64", "--max-disk", "1")
    assert 1 == result.exit_code and "Out of Memory Error" in result.stderr, result.output


def test_a_question_may_come_from_standard_input(config: Path) -> None:
    """A long one is no argument."""
    words = ["-", "--config", str(config), "--csv"]
    result = CliRunner().invoke(command.query, words, input="SELECT max(number) AS n\nFROM once -- each\n;")
    assert "n\n5\n" == result.stdout


def test_the_library_is_an_extra(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DuckDB the command names what to install."""
    monkeypatch.setattr(command, "_LIBRARY", "duckdb_that_is_not_there")
    result = ask(config, SPENT)
    assert (2, "tollhouse: a question in SQL needs DuckDB: pip install 'tollhouse[query]'\n") == (
        result.exit_code,
        result.stderr,
    )


def test_the_process_gets_no_credentials(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment it has what finds its program, and no key."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    started = list[dict[str, str]]()
    start = asyncio.create_subprocess_exec

    async def starting(*words: str, env: dict[str, str], **options: object) -> object:
        started.append(env)
        return await start(*words, env=env, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starting)
    assert [[5]] == found(config, "SELECT count(*) FROM lake")
    [env] = started
    assert "planted" not in env.values()


def test_nothing_of_the_folder_is_run(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that lies where the command is called, with the name of the library, is not taken for it."""
    (tmp_path / "duckdb.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert [[5]] == found(config, "SELECT count(*) FROM lake")


@pytest.mark.parametrize("format", ["ndjson", "focus", "focus-parquet"])
def test_other_formats_are_asked_alike(format: str, tmp_path: Path) -> None:
    """Lines of JSON have the same views; charges are the view `focus`."""

    async def run() -> None:
        async with opened(tmp_path / "data", StoppedClock(AT_NS / NS + 90_000)) as house:
            await land(house, path=tmp_path / "lake", format=format)

    asyncio.run(run())
    config = configured(tmp_path, f'type = "file"\npath = "{tmp_path}/lake"\nformat = "{format}"')
    text = SPENT if format == "ndjson" else "SELECT SubAccountId, BilledCost, x_Calls FROM focus ORDER BY 1"
    assert ["b", "0.000000000000000000000000002", "2"] == [str(value) for value in found(config, text)[1]]


def test_other_topics_are_tables(tmp_path: Path) -> None:
    """Their files are read where a question names them."""
    topics = ("ai-telemetry", USAGE_EVENTS)
    event = UsageEvent(
        id=record_id(9), source="test", event_type="seat", start_time=AT_NS, data={"team": "b"}
    )

    async def run() -> None:
        async with opened(tmp_path / "data", StoppedClock(AT_NS / NS + 90_000)) as house:
            await house.storage.log.append(
                Submission(topic=USAGE_EVENTS, received=1, records=[event], identities=[Identity(event.id)])
            )
            await land(house, path=tmp_path / "lake", topics=topics)

    asyncio.run(run())
    lines = f'type = "file"\npath = "{tmp_path}/lake"\ntopics = {json.dumps(topics)}'
    config = configured(tmp_path, lines)
    assert [["usage_event", record_id(9).hex()]] == found(config, "SELECT kind, id FROM usage_events")
    text = "SELECT (SELECT count(*) FROM lake), (SELECT count(*) FROM usage_events)"
    assert [[5, 1]] == found(config, text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a lake in a store of objects."""
    secret = tmp_path / "secret"
    secret.write_text("testing\ntesting-secret\n")
    with s3_server(tmp_path) as address:
        fields = {"type": "s3", "url": f"s3://{BUCKET}/query", "endpoint": address}

        async def run() -> None:
            async with opened(tmp_path / "data", StoppedClock(AT_NS / NS + 90_000)) as house:
                await land(house, path=None, secret_file=secret, **fields)

        asyncio.run(run())
        lines = [f'{name} = "{value}"' for name, value in {**fields, "secret_file": secret}.items()]
        yield configured(tmp_path, "\n".join(lines))


def test_files_of_a_store_are_copied_within_a_bound(store: Path) -> None:
    """The destination's own credentials fetch the dates that are asked for; more than may be copied is said."""
    assert [["=a", "0.000000000000000000000000003", 3]] == found(store, SPENT, "--to", "2026-09-21")
    text = "SELECT count(*) FROM lake"
    result = ask(store, text, "--json")
    size = json.loads(result.stdout)["bytes"]
    assert (2, 5) == (json.loads(result.stdout)["files"], json.loads(result.stdout)["rows"][0][0])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command, "MIB", size)
        assert [[5]] == found(store, text, "--max-download", "1")
        patched.setattr(command, "MIB", size - 1)
        refused = ask(store, text, "--max-download", "1")
    assert 1 == refused.exit_code and "ask for fewer dates with --from and --to" in refused.stderr
