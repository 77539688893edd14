"""Settings that move to another installation, commands with their exit codes, and processes that are killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.operations.files.kinds import file_kinds
from tests.integration.operations.files.objects import ROLE, SECRETS, files_of, generated
from tests.integration.operations.files.server import NEW_SECRET, Api, api
from tests.integration.test_serve import Run, ended, line, port_of, run
from tests.integration.test_two_gateways import shared_config
from tests.rounds import part
from tests.spool.postgres_cluster import Schema

__all__ = ["run"]
VIEW: dict[str, Any] = {"name": "Search", "filter": {}, "principal_dimension": "team"}
BUDGET: dict[str, Any] = {"name": "Monthly", "view": "Search", "default_amount": "1000"}
KEY: dict[str, Any] = {"name": "sender", "use_cases": ["Send AI Telemetry"]}
SMALL: dict[str, list[dict[str, Any]]] = {"views": [VIEW], "budgets": [BUDGET], "keys": [KEY]}
Command = Callable[..., Result]


@pytest.mark.parametrize("seed", part(range(4), every=4))
async def test_files_of_one_installation_make_another(
    tmp_path: Path, new_schema: Callable[[], Schema], seed: int
) -> None:
    """
    Files of one installation make another one: the export of every kind is the same after it was applied to an
    empty directory and to an empty schema. All objects are deleted again when their items are removed.
    """
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    made = files_of(generated(random.Random(seed)))

    async def moved(files: dict[str, str], to: Api) -> dict[str, str]:
        planned = await to.apply(files, dry_run=True)
        assert not planned["problems"], planned["problems"]
        secrets = {path: new_secret(path) for path in planned["new_secrets"]}
        first = await to.apply(files, secrets={**SECRETS, **NEW_SECRET, **secrets})
        assert "applied" in first, first
        again = await to.apply(files)
        assert "applied" in again, again
        assert [] == again["differences"]
        return await to.files()

    async with api(tmp_path / "one") as one, api(tmp_path / "other") as other:
        exported = await moved(made, one)
        assert exported == await moved(exported, other)
        objects = sum(map(len, generated(random.Random(seed)).values()))
        left = await other.apply(files_of({"roles": [{**ROLE, "members": [], "groups": []}]}))
        assert "applied" in left, left
        assert objects == len(left["differences"])
        assert ["- role - leads"] == [
            each["text"] for each in (await other.apply(files_of({})))["differences"]
        ]
    async with api(tmp_path / "shared", config) as shared:
        assert exported == await moved(exported, shared)


def new_secret(path: str) -> str:
    return file_kinds()[path.partition("/")[0]].new_secret()


@pytest.mark.proof
def test_the_demo_moves(command: Command, tmp_path: Path) -> None:
    """The settings of the demo are the same after they were applied to an empty directory."""
    demo = ("--data", tmp_path / "demo")
    made = CliRunner().invoke(
        main, [*map(str, ("demo", "--records", 3000, "--plant", "idle-seat,wide-key", *demo))]
    )
    assert 0 == made.exit_code, made.output
    exported, again = tmp_path / "exported", tmp_path / "again"
    assert 0 == CliRunner().invoke(main, [*map(str, ("export", "config", exported, *demo))]).exit_code
    command("apply", exported, "--secrets", tmp_path / "secrets")
    command("export", "config", again)
    files = {path.relative_to(exported): path.read_text() for path in exported.rglob("*.yaml")}
    assert {"allocation/default.yaml", "views.yaml", "plans.yaml"} <= {*map(str, files)}
    assert files == {path.relative_to(again): path.read_text() for path in again.rglob("*.yaml")}


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run a command on a data directory that no server uses."""
    (tmp_path / "store").mkdir()

    def started(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*map(str, words), "--data", str(tmp_path / "store")])
        assert code == result.exit_code, (result.output, result.exception)
        return result

    return started


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(100))
async def test_an_export_with_broken_objects_makes_another_installation(tmp_path: Path, seed: int) -> None:
    """
    Views and roles that name dimensions of a definition, or tags, that no longer exist are exported, named, and taken
    as broken by an empty installation. Applied again, they differ in nothing.
    """
    dice = random.Random(seed)
    lost = ["User:Defined:Lost", "tag:lost", "!User:Defined:Lost"]
    made = generated(dice)
    broken = []
    for number in range(1 + dice.randrange(3)):
        name = f"broken {number}"
        view = {"name": name, "filter": {dice.choice(lost): ["x"]}, "principal_dimension": "team"}
        made["views"].append(view)
        broken.append(f"view {name}")
        role = {**ROLE, "name": f"broken role {number}", "members": [], "groups": []}
        role["filters"] = [{"dimension": dice.choice(lost[:2]), "values": ["x"]}]
        made["roles"].append(role)
        broken.append(f"role broken role {number}")
    async with api(tmp_path / "one") as one, api(tmp_path / "other") as other:
        exported = await applied_and_exported(one, files_of(made))
        status, answer = await one.ask("GET", "/files")
        assert 200 == status
        assert sorted(broken) == sorted(note.partition(" is broken: ")[0] for note in answer["notes"])
        assert exported == await applied_and_exported(other, exported)


LOST_SOURCE = """Dimensions:
  Area:
    Rules:
      - Type: GroupBy
        Source: tag:lost
"""


async def test_a_definition_whose_source_is_lost_moves_as_broken(tmp_path: Path) -> None:
    """
    A definition that names a tag without an entry in `ledger.tags` is noted and stored, as a view is. Other unknown
    names stay errors.
    """
    files = {"tollhouse.yaml": "set: a\nformat: 1\n", "allocation/default.yaml": LOST_SOURCE}
    async with api(tmp_path / "one") as one, api(tmp_path / "other") as other:
        exported = await applied_and_exported(one, files)
        _, answer = await one.ask("GET", "/files")
        [note] = answer["notes"]
        assert note.startswith("definition default is broken: ")
        assert "the totals do not have the tag lost" in note
        assert exported == await applied_and_exported(other, exported)
        wrong = LOST_SOURCE.replace("tag:lost", "User:Defined:Lost")
        refused = await one.apply({**files, "allocation/default.yaml": wrong})
        assert "this definition has no dimension Lost" in refused


async def applied_and_exported(to: Api, files: dict[str, str]) -> dict[str, str]:
    planned = await to.apply(files, dry_run=True)
    assert not planned["problems"], planned["problems"]
    secrets = {path: new_secret(path) for path in planned["new_secrets"]}
    first = await to.apply(files, secrets={**SECRETS, **NEW_SECRET, **secrets})
    assert "applied" in first, first
    notes = [each["words"] for each in first["differences"] if each["action"] == "note"]
    assert any("is broken: " in note for note in notes)
    again = await to.apply(files)
    assert {"note"} == {each["action"] for each in again["differences"]}
    return await to.files()


def written(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, "utf-8")
    return directory


def test_a_plan_exits_with_2_if_it_differs(command: Command, tmp_path: Path) -> None:
    directory = written(tmp_path / "files", files_of(SMALL))
    planned = command("plan", directory, code=2)
    changes = "+ key sender\n+ view Search\n+ budget Search/Monthly\n"
    assert f"{changes}needs API key management, Modify Views and Budgets\n" == planned.stdout
    assert "new keys need a directory for their secrets" in command("apply", directory, code=2).stderr
    secrets = tmp_path / "secrets"
    assert changes == command("apply", directory, "--secrets", secrets).stdout
    file = secrets / "keys" / "sender"
    assert 0o600 == file.stat().st_mode & 0o777
    secret = file.read_text().strip()
    assert secret.startswith("th_")
    assert "the settings are equal to the files\n" == command("plan", directory).stdout
    again = command("apply", directory, "--secrets", secrets)
    assert "the settings are equal to the files\n" == again.stdout
    assert secret == file.read_text().strip()
    (directory / "budgets.yaml").write_text("- name: Monthly\n  view: Serch\n")
    for word, code in (("plan", 1), ("apply", 2)):
        assert 'budgets.yaml:2:3: view "Serch" does not exist' in command(word, directory, code=code).stderr
    exported = command("export", "config", tmp_path / "exported")
    assert "" == exported.stdout
    assert files_of(SMALL) == {path.name: path.read_text() for path in (tmp_path / "exported").iterdir()}
    assert secret not in f"{planned.output}{exported.output}"


def test_wrong_words_are_explained(command: Command, tmp_path: Path) -> None:
    assert "did you mean `tollhouse plans list`?" in command("plan", "list", code=1).stderr
    assert "is not a directory" in command("apply", "list", code=2).stderr
    assert 1 == command("plan", "--unknown", code=1).exit_code
    assert "name a directory, or an object with --release" in command("apply", code=2).stderr
    other = written(tmp_path / "other", {"notes.txt": ""})
    assert "has other files, such as notes.txt" in command("export", "config", other, code=1).stderr


def test_a_released_object_is_planned_as_made_by_hand(command: Command, tmp_path: Path) -> None:
    directory = written(tmp_path / "files", files_of({"views": [VIEW]}))
    command("apply", directory)
    command("apply", "--release", "views/Search")
    assert "! view Search: exists, made by hand" in command("plan", directory, code=2).stdout
    assert 2 == command("plan", directory, "--adopt", code=2).exit_code
    shown = json.loads(command("plan", directory, "--json", code=2).stdout)
    assert ["conflict"] == [each["action"] for each in shown["apply"]["conflicts"]]


async def test_a_server_starts_with_files(run: Run, tmp_path: Path) -> None:
    """
    A server that starts with files accepts the key of a mounted file at once. If the files are wrong, the start
    ends with exit code 2 and applies none of them.
    """
    keys = [{**KEY, "secret_file": "sender"}]
    directory = written(tmp_path / "files", {**files_of({**SMALL, "keys": keys}), "sender": "s" * 40})
    words = ("--listen", "127.0.0.1:0", "--grpc-listen", "", "--apply", str(directory))
    server = await run(*words)
    assert (await line(server)).startswith("listening on")
    server.send_signal(signal.SIGTERM)
    code, out, err = await ended(server)
    assert (0, "") == (code, out)
    assert '"action":"files_applied"' in err.replace(" ", "")
    assert "s" * 40 not in err
    (directory / "views.yaml").write_text("- name: Search\n")
    code, _, err = await ended(await run(*words))
    assert 2 == code
    assert "views.yaml:1:3: the field filter is missing" in err


async def test_two_gateways_start_at_once_with_files(
    run: Run, tmp_path: Path, new_schema: Callable[[], Schema]
) -> None:
    """
    If two gateways start at the same time with the same files, one of them applies the files, and the other finds
    nothing to do. Both accept the key of the files.
    """
    schema = new_schema()
    (tmp_path / "dsn").write_text(schema.dsn)
    (tmp_path / "secret").write_bytes(b"s" * 32)
    (tmp_path / "secret").chmod(0o600)
    keys = [{**KEY, "secret_file": "sender"}]
    files = written(tmp_path / "files", {**files_of({**SMALL, "keys": keys}), "sender": "s" * 40})
    servers = []
    for name in ("one", "other"):
        config = tmp_path / f"{name}.toml"
        config.write_text(
            f'[storage]\nengine = "postgres"\ndsn_file = "{tmp_path}/dsn"\nsecret_file = "{tmp_path}/secret"\n'
            f'schema = "{schema.name}"\ndurability = "local"\nnode_name = "{name}"\n[spool]\nmax_bytes = "1GiB"\n'
        )
        words = ("--config", str(config), "--data", str(tmp_path / name), "--apply", str(files))
        servers.append(run("--listen", "127.0.0.1:0", "--grpc-listen", "", *words))
    changes = []
    for server in await asyncio.gather(*servers):
        port = port_of(await line(server))
        async with (
            ClientSession() as session,
            session.post(
                f"http://127.0.0.1:{port}/v1/ai-telemetry", data=b"[]", headers={"Authorization": "s" * 40}
            ) as answer,
        ):
            assert answer.status not in (401, 403)
        server.send_signal(signal.SIGTERM)
        code, _, err = await ended(server)
        assert 0 == code, err
        logged = [json.loads(each) for each in err.splitlines() if each.startswith("{")]
        changes += [each["changes"] for each in logged if each.get("action") == "files_applied"]
    assert [0, 3] == sorted(changes)
