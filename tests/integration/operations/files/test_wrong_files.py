"""
Wrong files cost only their sender: reading them blocks no other request, answers are short, and a file names only
secrets that the person who applies it allowed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli.operator.files import OutsideDirectories, read_secrets, read_settings_files
from gateway.configuration.sections import Config, FileSetLimits
from gateway.core.paths import AS, OPERATOR_API
from gateway.core.yaml_text import NODES_AN_ITEM
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.operations.requests import requests
from spool import statements
from spool.engines import SQLITE
from spool.registry.tables.inventory import Machine
from tests.integration.operations.files.objects import files_of
from tests.integration.operations.files.server import api
from tests.integration.operations.server import OperatorServer, operator_server
from tests.integration.test_serve import Run, ended, run
from tests.rounds import part

__all__ = ["run"]
HEAD = "set: a\nformat: 1\n"
LIMITS = FileSetLimits()
ROOM = LIMITS.max_bytes - 1000
STEP_S = 0.05  # processor time after which a step of the event loop delays others
TRIES = 3  # a step that blocks is long each time, but a busy machine lengthens some steps
MAX_ANSWER = 100_000
proof = pytest.mark.proof


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    # a real file, because the work of an apply runs on the thread of its transaction
    async with operator_server(tmp_path, engine=SQLITE) as running:
        yield running


@contextmanager
def longest_step_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Measure the processor time of each step of the event loop, without collections of garbage."""
    steps: list[float] = [0.0]
    run_step = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run_step(handle)
        steps[0] = max(steps[0], time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    gc.disable()
    try:
        yield steps
    finally:
        gc.enable()
        monkeypatch.setattr(asyncio.Handle, "_run", run_step)


async def send_body(server: OperatorServer, path: str, body: bytes) -> tuple[int, bytes]:
    connector = aiohttp.UnixConnector(str(server.socket))
    headers = {AS: "ada@example.com", "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.post(f"http://tollhouse{OPERATOR_API}{path}", data=BytesIO(body)) as answer,
    ):
        return answer.status, await answer.read()


def body_of(files: dict[str, str], *, dry_run: bool = True) -> bytes:
    return json.dumps({"files": {"tollhouse.yaml": HEAD, **files}, "dry_run": dry_run}).encode()


def filled(line: str) -> str:
    return line * (ROOM // (len(json.dumps(line)) - 2))


WRONG = {
    "a list of wrong objects": {"views.yaml": filled("- a: b\n")},
    "nested lists": {"views.yaml": filled("[")},
    "one long word": {"views.yaml": filled("x")},
    "a long name": {f"allocation/{filled('n')}.yaml": "- a"},
    "not YAML": {"views.yaml": filled("{ }: & *\t")},
}
SLOW = {
    "one object with many fields": {
        "views.yaml": "- a: b\n" + "".join(f"  k{n}: v\n" for n in range(600_000))
    },
    "many wrong objects": {"views.yaml": "- a: b\n  c: d\n" * (LIMITS.max_objects - 1)},
    "many files": {f"{n:x}": "" for n in range(LIMITS.max_objects + 1)},
    "many good objects": {
        "views.yaml": "".join(
            f"- name: v{n}\n  filter: {{}}\n  principal_dimension: team\n" for n in range(LIMITS.max_objects)
        )
    },
}
CASES = [
    *(pytest.param(files, id=name) for name, files in WRONG.items()),
    *(pytest.param(files, id=name, marks=proof) for name, files in SLOW.items()),
]


@pytest.mark.parametrize("files", part(CASES, every=2))
async def test_wrong_files_block_nobody_and_get_a_short_answer(
    server: OperatorServer, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_body(server, "/apply", body_of({}))  # everything is imported now
    for is_dry in (True, False):
        body = body_of(files, dry_run=is_dry)
        tries: list[float] = []
        while len(tries) < TRIES and min(tries, default=STEP_S) >= STEP_S:
            with longest_step_s(monkeypatch) as longest:
                status, answer = await send_body(server, "/apply", body)
            assert (200 if is_dry else 422) == status
            assert len(answer) < MAX_ANSWER
            tries.append(longest[0])
        assert min(tries) < STEP_S


def bill_of(rows: int) -> bytes:
    """Return a page of OpenAI's costs with many lines."""
    costs = {"object": "organization.costs.result", "amount": {"value": "0.5", "currency": "usd"}}
    lines = [{**costs, "line_item": f"gpt-{n}, input", "project_id": "p"} for n in range(rows)]
    day = {"object": "bucket", "start_time": 1_764_547_200, "end_time": 1_764_633_600, "results": lines}
    return json.dumps({"object": "page", "data": [day], "has_more": False}).encode()


def inventory_of(machines: int) -> bytes:
    return b"serial,hostname,user\n" + b"".join(
        b"S%d,h%d,p%d@example.com\n" % (n, n, n) for n in range(machines)
    )


SIZE = 8 * 1024 * 1024
IMPORTS: dict[str, tuple[str | None, Callable[[], bytes]]] = {
    "a long inventory": (None, lambda: inventory_of(99_000)),
    "an inventory in one line": (None, lambda: b"a," * (SIZE // 2)),
    "a bill with many lines": ("costs.json", lambda: bill_of(20_000)),
    "a bill of brackets": ("costs.json", lambda: b"[" * SIZE),
    "a bill of one word": ("costs.json", lambda: b'["' + b"x" * SIZE + b'"]'),
    "a bill of wrong lines": ("costs.csv", lambda: b"a,b,c\n" + b"1,2,3\n" * (SIZE // 6)),
}


LONG_IMPORTS = ("a long inventory", "a bill with many lines")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[proof] if name in LONG_IMPORTS else []) for name in IMPORTS]
)
async def test_imports_block_nobody_and_get_a_short_answer(
    server: OperatorServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inventories and bills of any content: as long as for files of settings."""
    file, make = IMPORTS[name]
    body = make()
    await import_file(server, file, b"")  # everything is imported now
    tries: list[float] = []
    while len(tries) < TRIES and min(tries, default=STEP_S) >= STEP_S:
        with longest_step_s(monkeypatch) as longest:
            status, answer = await import_file(server, file, body)
        assert (200 if name in LONG_IMPORTS else 400) == status, answer
        assert len(answer) < MAX_ANSWER
        tries.append(longest[0])
    assert min(tries) < STEP_S


async def test_imports_are_checked_outside_of_the_event_loop(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The work grows with the rows, so it runs in a thread also for few of them. Another gateway reads an inventory in a
    thread as well, and a heartbeat finds the index of its machines made.
    """
    threads: dict[str, set[threading.Thread]] = {"row": set(), "machine": set(), "index": set()}
    check, machine_key = statements.check_statement, Machine.__dict__["key"]
    index = ExpectedMachines.__init__

    def noted_check(statement: statements.Statement) -> None:
        threads["row"].add(threading.current_thread())
        check(statement)

    def noted_key(machine: Machine) -> tuple[str, str]:
        threads["machine"].add(threading.current_thread())
        found: tuple[str, str] = machine_key.fget(machine)
        return found

    def noted_index(expected: ExpectedMachines, machines: Sequence[Machine]) -> None:
        threads["index"].add(threading.current_thread())
        index(expected, machines)

    monkeypatch.setattr(statements, "check_statement", noted_check)
    monkeypatch.setattr(Machine, "key", property(noted_key))
    monkeypatch.setattr(ExpectedMachines, "__init__", noted_index)
    fleet = server.services.senders.require_fleet()
    for file, body in (("costs.json", bill_of(3)), (None, inventory_of(3))):
        status, answer = await import_file(server, file, body)
        assert 200 == status, answer
    assert fleet.expected_machines().has_machine(serial="S2", hostname="")
    await server.registry.inventory.load()
    assert fleet.inventory is not None
    assert fleet.expected_machines().machines is fleet.inventory.machines
    for used in threads.values():
        assert used
        assert threading.main_thread() not in used


async def import_file(server: OperatorServer, file: str | None, body: bytes) -> tuple[int, bytes]:
    """Upload a bill, or an inventory if there is no name of a file."""
    connector = aiohttp.UnixConnector(str(server.socket))
    url = f"http://tollhouse{OPERATOR_API}"
    async with aiohttp.ClientSession(connector=connector, headers={AS: "ada@example.com"}) as session:
        if file is None:
            address, data = f"{url}/fleet/inventory?source=csv&confirm=true", BytesIO(body)
            asked = session.put(address, data=data, headers={"Content-Type": "text/csv"})
        else:
            form = aiohttp.FormData()
            form.add_field("file", BytesIO(body), filename=file)
            asked = session.post(f"{url}/statement-uploads", data=form)
        async with asked as answer:
            return answer.status, await answer.read()


def limit_files(server: OperatorServer, **limits: int) -> None:
    server.services.installation.config = lambda: Config(files=FileSetLimits(**limits))


async def plan_views(server: OperatorServer, *names: str) -> Any:
    views = [{"name": name, "filter": {}, "principal_dimension": "team"} for name in names]
    body = {"files": files_of({"views": views}), "dry_run": True}
    return (await server.ask("POST", "/apply", body)).payload["apply"]


@pytest.mark.parametrize("limit", [FileSetLimits().max_problems, 7])
async def test_problems_beyond_the_limit_are_counted(server: OperatorServer, limit: int) -> None:
    limit_files(server, max_problems=limit)
    for count, left_out in ((limit, 0), (limit + 1, 1)):
        files = {"tollhouse.yaml": HEAD, "views.yaml": "- a\n" * count}
        outcome = (await server.ask("POST", "/apply", {"files": files, "dry_run": True})).payload["apply"]
        assert (limit, left_out) == (len(outcome["problems"]), outcome["left_out"]["problems"])
        refused = await server.ask("POST", "/apply", {"files": files})
        assert refused.error[2].endswith("and 1 more problems") == bool(left_out)


async def test_a_set_with_too_many_objects_is_refused(server: OperatorServer) -> None:
    limit_files(server, max_objects=2)
    assert [] == (await plan_views(server, "a", "b"))["problems"]
    [problem] = (await plan_views(server, "a", "b", "c"))["problems"]
    assert "the list may have at most 2 items" == problem["message"]
    files = {"tollhouse.yaml": HEAD, "views.yaml": "[]", "roles.yaml": "[]"}
    outcome = await server.ask("POST", "/apply", {"files": files, "dry_run": True})
    [problem] = outcome.payload["apply"]["problems"]
    assert "a set may have at most 2 files (files.max_objects), but this one has 3" == problem["message"]


async def test_a_larger_set_is_taken_if_the_setting_allows_it(server: OperatorServer) -> None:
    """Keys and values of a file grow with the objects, so that no limit without a setting comes first."""
    limit_files(server, max_objects=2)
    nodes = NODES_AN_ITEM * 2 - 1  # besides the list itself
    for count in (nodes, nodes + 1):
        files = {"tollhouse.yaml": HEAD, "views.yaml": f"- [{'a,' * (count - 1)}]"}
        outcome = await server.ask("POST", "/apply", {"files": files, "dry_run": True})
        messages = [problem["message"] for problem in outcome.payload["apply"]["problems"]]
        assert (count > nodes) == ("the text may have at most 50 keys and values" in messages)


async def test_differences_beyond_the_limit_are_counted(server: OperatorServer) -> None:
    names = [f"{n}" for n in range(100)]
    assert 100 == len((await plan_views(server, *names))["differences"])
    limit_files(server, max_difference_bytes=1000)
    outcome = await plan_views(server, *names)
    assert 100 == len(outcome["differences"]) + outcome["left_out"]["differences"]
    assert outcome["left_out"]["differences"] > 0


async def test_a_set_in_bytes_may_be_as_large_as_the_setting_says(server: OperatorServer) -> None:
    body = body_of({"views.yaml": "#" * 2000})
    for most, status in ((len(body), 200), (len(body) - 1, 413)):
        limit_files(server, max_bytes=most)
        answered, answer = await send_body(server, "/apply", body)
        assert status == answered
        assert (status == 413) == (b"(files.max_bytes)" in answer)


async def test_a_request_with_too_many_texts_is_refused_before_it_is_decoded(server: OperatorServer) -> None:
    """One call decodes all texts, and no other thread runs meanwhile."""
    limit_files(server, max_objects=2)
    head = {"tollhouse.yaml": HEAD, "views.yaml": '- "\\\\'}  # 4 texts, and 3 names of members
    for secrets, status in ((3, 200), (4, 413)):
        body = {"files": head, "secrets": {f"{n}": "" for n in range(secrets)}, "dry_run": True}
        answered, answer = await send_body(server, "/apply", json.dumps(body).encode())
        assert status == answered
        words = b"the body has more than 13 names and texts: send fewer, or raise files.max_objects"
        assert (status == 413) == (words in answer)


@pytest.mark.parametrize("seed", range(20))
def test_texts_are_counted_in_pieces_of_any_size(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    texts = ["".join(chance.choices('\\"a\n:', k=chance.randrange(9))) for _ in range(50)]
    body = json.dumps([texts, dict.fromkeys(map(str, range(9)), 1)]).encode()
    for size in (2, 3, 7, len(body) - 1, len(body), len(body) + 1):
        monkeypatch.setattr(requests, "_PIECE", size)
        assert 59 == requests._count_texts(body)


def test_secrets_of_more_objects_than_the_default_are_read(tmp_path: Path) -> None:
    """The command does not know the server's limit of objects."""
    (tmp_path / "last").write_text("s" * 40)
    keys = "- a\n" * FileSetLimits().max_objects + "- secret_file: last\n"
    assert {"last": "s" * 40} == read_secrets({"keys.yaml": keys}, tmp_path, [])


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with settings in `settings`, secrets in `allowed`, and a file that nobody allowed."""
    for name in ("settings", "allowed", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere" / "upstream-key").write_text("k" * 40)
    (tmp_path / "allowed" / "hook").write_text("s" * 40)
    (tmp_path / "settings" / "tollhouse.yaml").write_text(HEAD)
    (tmp_path / "settings" / "link").symlink_to(tmp_path / "elsewhere" / "upstream-key")
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "elsewhere" / "upstream-key")
    (tmp_path / "allowed" / "linked").symlink_to(tmp_path / "elsewhere")
    return tmp_path


def name_secret(place: Path, path: str) -> Path:
    keys = f"- name: sender\n  use_cases:\n    - Send AI Telemetry\n  secret_file: {path}\n"
    (place / "settings" / "keys.yaml").write_text(keys)
    return place / "settings"


OUTSIDE = ["{place}/elsewhere/upstream-key", "../elsewhere/upstream-key", "link", "{place}/settings/link",
           "{place}/allowed/linked/upstream-key", "{place}/allowed/../elsewhere/upstream-key"]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_out_of_the_allowed_directories_is_never_opened(
    place: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links are followed first. Otherwise, a channel could send any readable file of the machine to its author."""
    directory = name_secret(place, path.format(place=place))
    files = read_settings_files(directory)
    opened: list[str] = []
    read_text = Path.read_text

    def noted(self: Path, *arguments: Any, **options: Any) -> str:
        opened.append(str(self.resolve()))
        return read_text(self, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", noted)
    for allowed in ([], [place / "allowed"]):
        with pytest.raises(OutsideDirectories, match="is outside of"):
            read_secrets(files, directory, allowed)
    assert [] == opened


@pytest.mark.parametrize("path", ["{place}/allowed/hook", "hook"])
def test_a_directory_that_the_runner_names_is_allowed(place: Path, path: str) -> None:
    """A relative path is below the first of these directories."""
    named = path.format(place=place)
    directory = name_secret(place, named)
    files = read_settings_files(directory)
    assert {named: "s" * 40} == read_secrets(files, directory, [place / "allowed", place / "settings"])


def test_a_settings_file_is_no_link_to_another_file(place: Path) -> None:
    (place / "settings" / "views.yaml").symlink_to(place / "elsewhere" / "upstream-key")
    with pytest.raises(OutsideDirectories, match=r"views\.yaml"):
        read_settings_files(place / "settings")


def test_apply_exits_with_2_and_the_path(place: Path) -> None:
    directory = name_secret(place, str(place / "elsewhere" / "upstream-key"))

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(main, [*map(str, words), "--data", str(place / "store")])

    (place / "store").mkdir()
    for code, words in ((2, ["apply"]), (1, ["plan"])):
        result = invoke(*words, directory)
        assert code == result.exit_code
        assert str(place / "elsewhere" / "upstream-key") in result.stderr
    allowed = invoke("apply", directory, "--secrets", place / "allowed", "--secrets", place / "elsewhere")
    assert 0 == allowed.exit_code, allowed.output


async def test_a_server_reads_only_allowed_secrets(run: Run, place: Path) -> None:
    directory = name_secret(place, str(place / "elsewhere" / "upstream-key"))
    words = ("--listen", "127.0.0.1:0", "--grpc-listen", "", "--apply", str(directory))
    code, _, err = await ended(await run(*words, "--secrets", str(place / "allowed")))
    assert 2 == code
    assert "upstream-key is outside of" in err


@pytest.mark.parametrize(
    ("item", "secret", "message"),
    [
        ("secret_file: ''", "", "secret_file is empty"),
        ("secret_file: sender", "\n", "is empty"),
        ("secret_file: sender", f"the_{'0' * 16}_{'1' * 64}", "must not begin with the_ or thd_"),
        ("secret_file: sender", f"thd_{'0' * 40}", "must not begin with the_ or thd_"),
    ],
)
async def test_a_secret_with_which_nobody_could_send_is_refused(
    server: OperatorServer, item: str, secret: str, message: str
) -> None:
    keys = f"- name: sender\n  use_cases:\n    - Send AI Telemetry\n  {item}\n"
    body = {"files": {"tollhouse.yaml": HEAD, "keys.yaml": keys}, "secrets": {"sender": secret}}
    answer = await server.ask("POST", "/apply", body)
    assert 422 == answer.status
    assert message in answer.error[2]


async def test_an_adopted_channel_keeps_its_secret_if_its_file_is_missing(tmp_path: Path) -> None:
    """Export and adopt, which is the documented first step, changes nothing and can be repeated."""
    async with api(tmp_path) as one:
        hook = {"name": "hooky", "type": "webhook", "url": "https://hooks.example.com/a"}
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        status, made = await one.ask("POST", "/notification-channels", {**hook, "secret": secret})
        assert 201 == status, made
        files = await one.files()
        for adopt in (True, False):
            outcome = await one.apply(files, adopt=adopt)
            assert "applied" in outcome, outcome
            notes = [each["words"] for each in outcome["differences"] if each["action"] == "note"]
            assert ["keeps its secret, because there is no file 'channels/hooky'"] == notes
        # another path is a mistake in the file
        changed = {
            **files,
            "channels.yaml": files["channels.yaml"].replace("channels/hooky", "channels/hoky"),
        }
        assert "was not found" in await one.apply(changed)
