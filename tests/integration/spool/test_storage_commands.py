"""`tollhouse storage` creates, describes and changes the shared storage of gateways on one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from spool.clock import SystemClock
from spool.engines import open_storage
from spool.installation import FILE
from spool.settings import SpoolSettings
from spool.sqlite.directory import MARK
from spool.storage import StorageOptions
from tests.spool.postgres_cluster import Schema


@pytest.fixture
def file(unmade_schema: Schema, tmp_path: Path) -> Path:
    """Return a configuration whose storage does not exist yet."""
    dsn_file = tmp_path / "tollhouse.dsn"
    dsn_file.write_text(unmade_schema.dsn)
    path = tmp_path / "tollhouse.toml"
    path.write_text(
        f'[storage]\nengine = "postgres"\ndsn_file = "{dsn_file}"\nsecret_file = "{tmp_path}/secret"\n'
        f'schema = "{unmade_schema.name}"\ndurability = "local"\n[spool]\nretention = "3d"\nmax_bytes = '
        '"1GiB"\n'
    )
    return path


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["storage", words[0], "--config", str(file), *words[1:]])


def test_the_storage_is_made_described_and_changed(file: Path) -> None:
    """
    `tollhouse storage` creates, describes and changes the storage without another tool. It reports what is missing.
    """
    before = run(file, "status")
    assert before.exit_code == 1
    assert "tollhouse storage init" in before.output
    assert run(file, "migrate").exit_code == 2
    made = run(file, "init", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["secret_made"]
    assert (file.parent / "secret").stat().st_mode & 0o777 == 0o600
    assert run(file, "migrate").exit_code == 0
    changed = run(file, "set", "hold=20s", "duplicate_ids=5000", "--json")
    assert json.loads(changed.stdout)["hold"] == 20.0
    found = json.loads(run(file, "status", "--json").output)
    assert found["problem"] == ""
    assert found["settings"]["duplicate_ids"] == 5000
    assert found["settings"]["retention"] == 3 * 86400
    assert "hold=20s" in run(file, "status").output


@pytest.mark.parametrize(
    "words", ["max_bytes=1GiB", "hold=soon", "duplicate_ids=0", "duplicate_ids=1.5", "hold=9d"]
)
def test_a_bad_change_says_what_is_possible(file: Path, words: str) -> None:
    """After a bad change nothing differs, and the message has the expected form or the valid names."""
    run(file, "init")
    refused = run(file, "set", words)
    assert refused.exit_code == 2
    assert words.partition("=")[0] in refused.output


def test_the_room_of_a_shared_storage_has_to_be_set(file: Path) -> None:
    """
    The size of a shared storage has to be set, because its disk belongs to another machine and no default would
    fit. PostgreSQL stops if its disk is full.
    """
    file.write_text(file.read_text().replace('max_bytes = "1GiB"', ""))
    refused = run(file, "init")
    assert refused.exit_code == 2
    assert 'spool.max_bytes is required with storage.engine = "postgres". Set at most 60 %' in refused.output


def test_files_have_no_shared_storage(tmp_path: Path) -> None:
    """Without [storage], all data are in files of one node, and the command says so."""
    path = tmp_path / "tollhouse.toml"
    path.write_text("")
    refused = run(path, "status")
    assert refused.exit_code == 2
    assert 'storage.engine is "sqlite"' in refused.output


def test_a_storage_is_copied_there_and_back(file: Path, tmp_path: Path) -> None:
    """
    Copying a storage prints a line per topic and requires options that say what to copy. Gateways refuse
    an incomplete copy.
    """
    (tmp_path / "files.toml").write_text('data_dir = "first"\n')
    (tmp_path / "back.toml").write_text('data_dir = "back"\n')
    asyncio.run(make_files(tmp_path / "first"))
    first = copied("--from", str(tmp_path / "first"), "--to-config", str(file), "--json")
    assert first.exit_code == 0
    assert json.loads(first.stdout) == {"records": {}, "routes": 0}
    assert 0 == copied("--from-config", str(file), "--to-config", str(tmp_path / "back.toml")).exit_code
    assert (tmp_path / "first" / FILE).read_bytes() == (tmp_path / "back" / FILE).read_bytes()
    neither = copied("--to-config", str(file))
    assert neither.exit_code == 2
    assert "--from-config" in neither.output
    (tmp_path / "back" / MARK).touch()
    served = CliRunner().invoke(
        main, ["serve", "--config", str(tmp_path / "back.toml"), "--listen", "127.0.0.1:0"]
    )
    assert served.exit_code == 2
    assert "an unfinished copy" in served.output


def test_storage_is_written_to_and_read_from_a_file(file: Path, tmp_path: Path) -> None:
    """
    Writing a storage to a file and reading it back prints a line per topic. An unsuitable file is refused
    with an explanation.
    """
    (tmp_path / "files.toml").write_text('data_dir = "first"\n')
    asyncio.run(make_files(tmp_path / "first"))
    archive = str(tmp_path / "all.archive")
    told = CliRunner().invoke(
        main, ["storage", "export", archive, "--config", str(tmp_path / "files.toml"), "--json"]
    )
    assert told.exit_code == 0
    assert json.loads(told.stdout) == {"records": {}, "routes": 0}
    assert 0 == run(file, "import", archive).exit_code
    refused = run(file, "import", str(file))
    assert refused.exit_code == 2
    assert "is not a storage archive" in refused.output


async def make_files(directory: Path) -> None:
    await (
        await open_storage(StorageOptions(directory=directory, settings=SpoolSettings(), clock=SystemClock()))
    ).close()


def copied(*words: str) -> Result:
    return CliRunner().invoke(main, ["storage", "copy", *words])
