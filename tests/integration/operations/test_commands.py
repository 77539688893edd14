"""The operator commands: with a server, without one, during a start or stop, and with usage errors."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli.operator import client as operator_client
from gateway.cli.serve import STOP_WITHIN_S
from gateway.configuration.local_operator import local_address
from gateway.configuration.sections import Config
from gateway.http.lists import AGE
from spool.clock import SystemClock
from spool.clusters import ReportedCluster
from spool.deliveries.values import RouteSpec, Settlement
from spool.identity import RecordIdentity
from spool.log.values import AcceptedTwice, LogAccounting, Submission
from spool.record import AI_TELEMETRY, USAGE_EVENTS, UsageEvent
from spool.registry.operators import check_email
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.sqlite.directory import lock_directory
from spool.sqlite.log.log import SqliteLog
from spool.sqlite.spool import open_spool
from tests.processes.copied import COMMAND, copying_command, start_process
from tests.rounds import part
from tests.spool.contract.examples import add, call

Run = Callable[..., Result]
SOME = (["one", "two"], ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"])
AGES = ["12h", "3d"]
BY_WHERE = {("report",)}  # these list commands have their own filter syntax
BY_RIGHT = {("people", "viewings")}  # without the right, these list commands are refused
CREATE = ("keys", "create", "--name", "search team", "--use-case", SEND_AI_TELEMETRY)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a data directory that no server uses."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    return run_on(tmp_path / "store")


def run_on(directory: Path) -> Run:
    def command(*words: str, input: str | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*words, "--data", str(directory)], input=input)
        assert code == result.exit_code, (result.output, result.exception)
        return result

    return command


@pytest.fixture(scope="module")
def with_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a data directory with one key, for commands that change nothing."""
    directory = tmp_path_factory.mktemp("with-key")
    run_on(directory)(*CREATE)
    return directory


@pytest.fixture
def look(with_key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command that changes nothing."""
    monkeypatch.chdir(tmp_path)
    return run_on(with_key)


def answer(result: Result) -> Any:
    return json.loads(result.stdout)


def test_a_key_lives_its_whole_life_without_a_server(run: Run, tmp_path: Path) -> None:
    """
    A key is created, listed, shown, edited, disabled, enabled, rotated and deleted in a directory that was empty.
    """
    created = answer(run(*CREATE, "--label", "team=search", "--description", "d", "--json"))
    assert {"key", "secret"} == set(created)
    assert created["secret"].startswith("th_")
    assert {
        "name", "description", "status", "state", "scopes", "use_cases", "scope_count", "labels", "created_by",
        "updated_by", "last_modified", "last_accessed", "version",
    } == set(created["key"])  # fmt: skip
    assert created["key"]["labels"] == {"team": "search"}
    assert created["key"]["description"] == "d"
    assert [created["key"]] == answer(run("keys", "list", "--json"))["keys"]
    assert created["key"] == answer(run("keys", "show", "search team", "--json"))["key"]
    edited = answer(run("keys", "edit", "search team", "--name", "ranking", "--no-labels", "--json"))["key"]
    assert edited["name"] == "ranking"
    assert edited["labels"] == {}
    assert "Disabled" == answer(run("keys", "disable", "ranking", "--json"))["key"]["status"]
    assert "Enabled" == answer(run("keys", "enable", "ranking", "--json"))["key"]["status"]
    rotated = answer(run("keys", "rotate", "ranking", "--overlap", "1h", "--json"))
    assert rotated["secret"] != created["secret"]
    assert run("keys", "list").stdout.startswith("NAME")
    assert rotated["secret"] not in run("keys", "show", "ranking").output
    shown = run("keys", "create", "--name", "abc", "--scope", "views:read_view").stdout.splitlines()[-2]
    assert shown.startswith("    th_")
    assert "next: --cursor" in run("keys", "list", "--limit", "1").stderr
    first = answer(
        run("keys", "list", "--limit", "1", "--sort-key", "name", "--sort-order", "desc", "--json")
    )
    cursor = first["pagination"]["cursor"]["next_cursor"]
    second = answer(run("keys", "list", "--cursor", cursor, "--json"))
    assert ["ranking", "abc"] == [key["name"] for page in (first, second) for key in page["keys"]]
    run("keys", "delete", "abc", "--confirm", "abc")
    assert "deleted" in run("keys", "delete", "ranking", "--confirm", "ranking").output
    assert [] == answer(run("keys", "list", "--json"))["keys"]
    assert 0o700 == (tmp_path / "store").stat().st_mode & 0o777


def reported(directory: Path) -> ReportedCluster:
    """Add a cluster that has reported to the installation in a directory."""
    mill = ReportedCluster(account="1", region="eu", name="mill")

    async def report() -> None:
        spool = await open_spool(directory / "store", settings=SpoolSettings(), clock=SystemClock())
        await spool.clusters.store_report(mill)
        await spool.close()

    asyncio.run(report())
    return mill


@pytest.mark.proof
def test_earlier_configuration_can_be_applied_again(run: Run, tmp_path: Path) -> None:
    """The versions of a cluster's configuration are listed with their authors, and each can be applied again."""
    mill = reported(tmp_path)
    configs = [{"scrape_interval": "60s"}, {"scrape_interval": "90s"}]
    for config in configs:
        (tmp_path / "config.json").write_text(json.dumps(config))
        run("clusters", "edit", mill.id, "--cluster-config", "config.json")
    listed = answer(run("clusters", "versions", mill.id, "--json"))["versions"]
    assert configs[::-1] == [each["config"] for each in listed]
    assert all("@" in each["by"] and each["set"].endswith("Z") for each in listed)
    back = answer(run("clusters", "edit", mill.id, "--config-version", listed[1]["version"], "--json"))
    assert configs[0] == back["cluster"]["config"]
    assert listed[1]["version"] == back["cluster"]["config_version"]
    none = answer(run("clusters", "edit", mill.id, "--config-version", "none", "--json"))
    assert none["cluster"]["config_version"] is None
    assert none["cluster"]["config"] == {}
    assert listed[0]["version"] in run("clusters", "versions", mill.id).stdout
    wrong = run("clusters", "edit", mill.id, "--config-version", "0" * 16, code=2)
    assert "clusters versions" in wrong.stderr


def test_a_cluster_is_worked_on_without_a_server(run: Run, tmp_path: Path) -> None:
    """A cluster is listed, shown, edited, and deleted by its exact id."""
    mill = reported(tmp_path)
    assert ["mill"] == [row["name"] for row in answer(run("clusters", "list", "--json"))["clusters"]]
    (tmp_path / "config.json").write_text('{"scrape_interval": "60s"}')
    words = (
        "--display-name",
        "Mill",
        "--label",
        "team=search",
        "--disable",
        "--cluster-config",
        "config.json",
    )
    edited = answer(run("clusters", "edit", mill.id, *words, "--json"))
    assert edited == answer(run("clusters", "show", mill.id, "--json"))
    assert ("Mill", {"team": "search"}, False, {"scrape_interval": "60s"}) == tuple(
        edited["cluster"][name] for name in ("display_name", "labels", "enabled", "config")
    )
    told = answer(run("clusters", "config", mill.id))
    assert {"version": edited["cluster"]["config_version"], "config": {"scrape_interval": "60s"}} == told
    held = answer(run("clusters", "config", mill.id, "--format", "configmap"))
    assert held["kind"] == "ConfigMap"
    assert told["config"] == json.loads(held["data"]["config.json"])
    (tmp_path / "config.json").write_text('{"scrape_intervall": "60s"}')
    values = run("clusters", "config", mill.id, "--format", "values").stdout
    assert values.startswith(f"# cluster mill ({mill.id}), version {told['version']}\n")
    wrong = run("clusters", "edit", mill.id, "--cluster-config", "config.json", code=2)
    assert "did you mean scrape_interval?" in wrong.stderr
    (tmp_path / "config.json").write_text("[]")
    assert "JSON object" in run("clusters", "edit", mill.id, "--cluster-config", "config.json", code=2).stderr
    assert "nothing to change" in run("clusters", "edit", mill.id, code=2).stderr
    run("clusters", "delete", mill.id, "--confirm", "mill", code=2)
    run("clusters", "delete", mill.id, "--confirm", mill.id)
    run("clusters", "show", mill.id, code=2)


def test_a_directory_that_holds_nothing_is_said(run: Run) -> None:
    """
    If the data directory is mistyped, the command says so, because otherwise it would look like an empty, balanced
    installation.
    """
    assert "is a new data directory without any data" in run("spool", "verify").stderr
    assert "" == run("spool", "verify").stderr


def test_a_directory_that_nobody_may_look_into_is_said(tmp_path: Path) -> None:
    """
    A directory that the user may not read is reported on one line. To cause such an error, the test uses a
    name that is too long for the system.
    """
    result = CliRunner().invoke(main, ["keys", "list", "--data", str(tmp_path / ("long" * 100))])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "cannot be used: File name too long" in result.stderr


def list_commands(words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the commands that page a list and need no argument."""
    group: click.Command = main
    for word in words:
        assert isinstance(group, click.Group)
        found = group.get_command(click.Context(group), word)
        assert found is not None
        group = found
    if isinstance(group, click.Group):
        for word in group.list_commands(click.Context(group)):
            yield from list_commands((*words, word))
    elif (
        words not in BY_WHERE | BY_RIGHT
        and any(each.name == "cursor" for each in group.params)
        and not any(each.required for each in group.params)
    ):
        yield words


@pytest.mark.parametrize(
    "words", part([pytest.param(words, id=" ".join(words)) for words in list_commands()], every=5)
)
def test_list_command_has_an_option_for_every_filter(look: Run, words: tuple[str, ...]) -> None:
    """Each filter in `filtering.available` is an option. Repeated options appear in `filtering.current`."""
    available = answer(look(*words, "--json"))["filtering"]["available"]
    asked = {
        each["field"]: AGES
        if AGE in each["valid_types"]
        else (each["valid_values"] or SOME[each["field"].endswith("_time")])[:2]
        for each in available
        if not each["field"].startswith("tag:")  # tags are a setting, so they cannot have fixed options
    }
    options = [
        word
        for field, values in asked.items()
        for value in values
        for word in (f"--{field.replace('_', '-')}", value)
    ]
    assert asked == answer(look(*words, *options, "--json"))["filtering"]["current"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("keys", "create", "--name", "ab", "--scope", "views:read_view"), "at least 3 characters"),
        (CREATE, "already exists"),
        (
            ("keys", "create", "--name", "new", "--scope", "views:read_vieww"),
            "did you mean 'views:read_view'",
        ),
        (
            ("keys", "create", "--name", "new", "--use-case", SEND_AI_TELEMETRY, "--label", "team"),
            "NAME=VALUE",
        ),
        (("keys", "create", "--scope", "views:read_view"), "--name"),
        (("keys", "show", "nobody"), "there is no key named 'nobody'"),
        (("keys", "edit", "search team"), "nothing to change"),
        (("keys", "edit", "search team", "--label", "a=b", "--no-labels"), "not both"),
        (("keys", "delete", "search team", "--confirm", "Search Team"), "exact name"),
        (("keys", "delete", "search team"), "--confirm"),
        (("keys", "rotate", "search team", "--overlap", "soon"), "24h"),
        (("keys", "rotate", "search team", "--overlap", "91d"), "90 days"),
        (("keys", "list", "--status", "Asleep"), "Enabled, Disabled"),
        (("keys", "list", "--sort-key", "colour"), "name, description, status"),
        (("keys", "list", "--cursor", "forged"), "cursor"),
        (("spool", "receipt", "forged"), "receipt"),
        (("spool", "dead", "show", "7"), "no rejected record"),
        (("spool", "dead", "retry"), "--route"),
        (("spool", "dead", "discard", "7", "--all"), "--route"),
        (("spool", "route", "delete", "archive/ai-telemetry"), "no route named"),
        (("spool", "route", "delete", "archive"), "DESTINATION/TOPIC"),
        (("spool", "replay", "--route", "a/b", "--since", "1h"), "no route named"),
        (("spool", "replay", "--route", "a/b", "--since", "yesterday"), "24h"),
        (("spool", "replay", "--route", "a/b", "--since", "99999999999d"), "no route named"),
        (("spool", "replay", "--route", "a/b", "--since", "2026-01-02", "--until", "2026-01-01"), "earlier"),
        (("operators", "delete", "eve@example.com"), "no operator"),
        (("console", "link", "--role", "king"), "Member, Operator, Admin or none"),
    ],
)
def test_wrong_use_is_exit_2_and_a_sentence_on_stderr(
    look: Run, words: tuple[str, ...], sentence: str
) -> None:
    """
    An invalid, unknown or existing name, a wrong --confirm, and scopes with use cases are usage errors. The
    message states the rule.
    """
    result = look(*words, code=2)
    assert sentence in result.stderr
    assert "" == result.stdout


@pytest.mark.proof
def test_a_budget_has_thresholds_and_names_a_missing_channel(run: Run) -> None:
    """
    Without options, a new budget alerts at 80 and 100 percent and says so. A budget with only a forecast
    threshold has no others. Without a channel, `create` and `edit` warn on stderr and exit with 0.
    """
    run("views", "create", "--name", "All", "--principal", "model")
    usual = run("budgets", "create", "--name", "Usual", "--view", "all", "--amount", "10", "--json")
    assert {"80": "Y", "100": "Y"} == json.loads(usual.stdout)["budget"]["alerts"]
    assert "alerts at 80 % and 100 %" in usual.stderr
    words = ("--name", "Forecast", "--view", "all", "--amount", "10", "--forecast-alert", "90", "--json")
    forecast = run("budgets", "create", *words)
    assert {} == json.loads(forecast.stdout)["budget"]["alerts"]
    assert "no --alert given" not in forecast.stderr
    edited = run("budgets", "edit", json.loads(usual.stdout)["budget"]["id"], "--amount", "12")
    for made in (usual, forecast, edited):
        assert "nobody will be notified: there is no channel" in made.stderr
    hook = "https://hooks.slack.com/services/T0/B0/x"
    run("notifications", "channels", "create", "chat", "slack", "--secret-file", "-", input=hook)
    notified = ("--name", "Notified", "--view", "all", "--amount", "10", "--alert", "90")
    assert "" == run("budgets", "create", *notified).stderr


def test_a_budget_lives_its_whole_life_without_a_server(run: Run) -> None:
    """
    A budget is created on a named view, silenced, shown and evaluated. Its owners and alerts are listed. It
    is deleted by name.
    """
    run("views", "create", "--name", "All", "--principal", "model")
    plan = ("--amount", "10", "--plan", "2026-11-01=12.50", "--alert", "80", "--forecast-alert", "100")
    made = answer(
        run("budgets", "create", "--name", "Chat", "--view", "all", *plan, "--per", "model", "--json")
    )["budget"]
    assert (
        {"monthly": {"2026-11-01": {"amount": "12.50"}}},
        "10",
        {"80": "Y"},
        {"100": "Y"},
        "model",
    ) == tuple(
        made[name] for name in ("planned_limits", "default_amount", "alerts", "forecast_alerts", "per")
    )
    id = made["id"]
    edited = answer(
        run("budgets", "edit", id, "--silent-until", "2026-12-01", "--silence-reason", "move", "--json")
    )["budget"]
    assert {"until": "2026-12-01T00:00:00.000Z", "reason": "move"} == edited["silence"]
    every = [word for name in ("current", "history", "burnup", "forecast") for word in ("--expand", name)]
    shown = run("budgets", "show", id, *every).output
    assert all(
        words in shown
        for words in ("Chat", "unpriced calls", "QUARTERLY", "DAILY", "too early for a forecast")
    )
    assert "evaluated 1, alerts sent: 0" in run("budgets", "evaluate").output
    assert [] == answer(run("budgets", "owners", id, "--json"))["owners"]
    assert [] == answer(run("budgets", "alerts", id, "--state", "fired", "--json"))["alerts"]
    assert "use this view: Chat" in run("views", "delete", "all", code=2).stderr
    assert "exact name" in run("budgets", "delete", id, "--confirm", "chat", code=2).stderr
    run("budgets", "delete", id, "--confirm", "Chat")
    assert [] == answer(run("budgets", "list", "--json"))["budgets"]


def test_an_empty_report_says_why(run: Run) -> None:
    """Without calls in the period, the report says so, and it names a command that sends one."""
    assert "no calls in this period; `tollhouse send" in run("report").stderr


def test_operators_are_managed_by_command(run: Run) -> None:
    """
    Operators are added, listed, given a password and removed. The password comes from standard input, never
    from an argument.
    """
    run("operators", "create", "ada@example.com", "--role", "Organizer", input="correct horse battery\n")
    assert "Admin" in run("operators", "list", "--role", "organizer").output
    [row] = answer(run("operators", "list", "--json"))["operators"]
    assert row["email"] == "ada@example.com"
    assert row["role"] == "admin"
    run("operators", "password", "ada@example.com", input="another horse battery\n")
    assert "12" in run("operators", "create", "eve@example.com", input="short\n", code=2).stderr
    assert "no other Admin is enabled" in run("operators", "delete", "ada@example.com", code=2).stderr
    run("operators", "create", "root@example.com", "--role", "admin", input="correct horse battery\n")
    run("operators", "delete", "ada@example.com")
    assert ["root@example.com"] == [
        row["email"] for row in answer(run("operators", "list", "--json"))["operators"]
    ]


def test_a_console_link_is_printed(run: Run) -> None:
    assert run("console", "link").stdout.startswith("http://127.0.0.1:4318/console/#link=")


@pytest.mark.proves("the actor of a command")
def test_as_names_the_actor(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """--as EMAIL names the actor. Without it, TOLLHOUSE_AS does, or else the system user at this machine."""
    assert (
        "grace@example.com"
        == answer(run(*CREATE, "--as", "grace@example.com", "--json"))["key"]["created_by"]
    )
    again = answer(run("keys", "disable", "search team", "--json"))["key"]
    mine = local_address(Config())
    assert again["created_by"] == "grace@example.com"
    assert again["updated_by"] == mine
    assert mine == check_email(mine)
    monkeypatch.setenv("TOLLHOUSE_AS", "ops@example.com")
    assert "ops@example.com" == answer(run("keys", "enable", "search team", "--json"))["key"]["updated_by"]
    refused = run("keys", "disable", "search team", "--as", "root", code=2)
    assert all(way in refused.stderr for way in ("--as", "TOLLHOUSE_AS", "operators.local", "USER@HOSTNAME"))
    assert run("keys", "list", "--as", "root").stdout


def test_spool_commands_answer_for_an_empty_spool(run: Run) -> None:
    """A missing data directory is created, and an empty queue balances."""
    status = answer(run("spool", "status", "--json"))
    assert {"topics", "routes", "space", "duplicate_window_s", "nodes", "native", "lakes"} == set(status)
    assert answer(run("spool", "verify", "--json"))["balanced"]
    for words, root in (
        (("dead", "list"), "dead"),
        (("route", "list"), "routes"),
        (("ignored",), "ignored"),
        (("conflicts",), "conflicts"),
        (("refused",), "partial_refusals"),
    ):
        payload = answer(run("spool", *words, "--json"))
        assert {root, "pagination", "filtering", "sorting"} == set(payload)
        assert [] == payload[root]
        run("spool", *words)
    run("spool", "status")
    run("spool", "verify")


def test_types_of_usage_events_without_a_mapping_are_named(run: Run, tmp_path: Path) -> None:
    """
    `spool status` names event types without a mapping, and `events types` lists them. Without usage events,
    the status does not mention them.
    """
    assert "usage events" not in run("spool", "status").stdout

    async def work() -> None:
        spool = await open_spool(tmp_path / "store", settings=SpoolSettings(hold=0), clock=SystemClock())
        event = UsageEvent(id=b"1" * 16, source="app", event_type="log\x1bin")
        await spool.log.append_submission(
            Submission(topic=USAGE_EVENTS, received=1, records=[event], identities=[RecordIdentity(event.id)])
        )
        await spool.close()

    asyncio.run(work())
    shown = run("spool", "status").stdout
    assert (
        "usage events that are stored and not sent to your cost service: log in (tollhouse events types)"
        in shown
    )
    assert "log in" in run("events", "types").stdout
    [row] = answer(run("events", "types", "--sent", "no", "--json"))["event_types"]
    assert row["type"] == "log\x1bin"
    assert row["count"] == 1
    assert row["sent_as"] is None
    assert [] == answer(run("events", "types", "--sent", "yes", "--json"))["event_types"]
    assert "log in" in run("events", "list").stdout
    assert [] == answer(run("events", "list", "--type", "else", "--json"))["events"]


def test_a_record_on_file_is_explained(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A record is explained by its id without a server. An unknown record and a call without a subject
    are usage errors.
    """
    record, known_as = call(1)

    async def work() -> None:
        spool = await open_spool(tmp_path / "store", settings=SpoolSettings(hold=0), clock=SystemClock())
        await add(spool.log, (record, known_as))
        await spool.close()

    asyncio.run(work())
    assert "open" == answer(run("explain", "--record", known_as.id.hex()))["state"]
    monkeypatch.setenv("TOLLHOUSE_SPOOL__HOLD", "0s")
    shown = answer(run("explain", "--record", known_as.id.hex()))
    assert known_as.id.hex() == shown["record"]["id"]
    assert shown["number"] == 1
    assert shown["state"] == "closed"
    assert "no record with this id" in run("explain", "--record", "0" * 32, code=2).stderr
    words = ("explain", "--record", "0" * 32, "--since", "2026-11-01")
    assert "was stored since 2026-11-01T00:00:00.000Z" in run(*words, code=2).stderr
    assert "--since needs --record" in run("explain", "--since", "2026-11-01", "file", code=2).stderr
    assert "give FILE, or --record ID" in run("explain", code=2).stderr


def verified_as(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    """Make `spool verify` return this accounting."""

    async def verify(self: object) -> LogAccounting:
        books = {"topics": {"ai-telemetry": {"received": 2}}, "routes": {}, "imbalances": [], **found}
        return LogAccounting(**books)

    monkeypatch.setattr(SqliteLog, "verify", verify)


def test_accounting_that_does_not_balance_is_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the accounting does not balance, `spool verify` still prints it, and ends with exit code 1."""
    verified_as(monkeypatch, imbalances=["ai-telemetry: 2 is not 1"])
    result = run("spool", "verify", "--json", code=1)
    assert not answer(result)["balanced"]
    assert "ai-telemetry: 2 is not 1" in result.stderr


def test_records_that_count_twice_are_exit_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    `spool verify` and `doctor` state which records count twice and where to read more. The JSON has their
    number and the first record numbers.
    """
    twice = {"ai-telemetry": AcceptedTwice(records=12, numbers=[101, 102])}
    verified_as(monkeypatch, accepted_twice=twice)
    result = run("spool", "verify", "--json", code=1)
    assert {"ai-telemetry": {"records": 12, "numbers": [101, 102]}} == answer(result)["accepted_twice"]
    words = (
        "records that count twice, because they were accepted although their ids were known: "
        "12 (numbers 101, 102, ...)"
    )
    assert words in result.stderr and "docs/promises/reliability.md" in result.stderr
    assert words in run("doctor", code=1).stdout


def test_left_out_tags_are_a_footnote_of_the_accounting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags are no records, so they are a term in JSON and a sentence below the sums."""
    verified_as(monkeypatch, topics={"ai-telemetry": {"received": 2, "left_out": 3}})
    assert 3 == answer(run("spool", "verify", "--json"))["topics"]["ai-telemetry"]["left_out"]
    lines = run("spool", "verify").stdout.splitlines()
    assert [
        "ai-telemetry: 3 tags were left out, because they exceeded a limit or had a name used for content"
    ] == [line for line in lines if "left" in line]


def test_what_a_killed_process_left_stops_nothing(run: Run, tmp_path: Path) -> None:
    """A lock file, a socket and a path file of a killed process do not stop a command."""
    run("spool", "status")
    gateway = tmp_path / "store"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(gateway / "operator.sock"))
    left.close()
    (gateway / "operator.path").write_text(str(tmp_path / "gone" / "operator.sock"))
    (gateway / "lock").write_text("999999")
    assert [] == answer(run("keys", "list", "--json"))["keys"]


def test_a_held_lock_without_a_socket_is_exit_1(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the lock is held and there is no socket, the message says that the server is starting or stopping.
    """
    monkeypatch.setattr(operator_client, "TURN_S", 0.3)
    lock = lock_directory(tmp_path / "store")
    try:
        assert "Tollhouse is starting or stopping" in run("keys", "list", code=1).stderr
    finally:
        lock.release()


def test_command_waits_for_the_lock_of_a_stopping_server(run: Run, tmp_path: Path) -> None:
    """While a server stops, a command waits at least as long as a stop may take."""
    import threading

    assert operator_client.TURN_S > STOP_WITHIN_S
    lock = lock_directory(tmp_path / "store")
    timer = threading.Timer(0.5, lock.release)
    timer.start()
    assert [] == answer(run("keys", "list", "--json"))["keys"]
    timer.join()


def test_two_simultaneous_commands_run_one_after_the_other(run: Run, tmp_path: Path) -> None:
    run("spool", "status")
    program, number = copying_command()
    commands = [
        subprocess.Popen(
            [program, "keys", "create", "--name", f"key {each}", "--scope", "views:read_view",
             "--data", str(tmp_path / "store")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[number],
        )
        for each in range(2)
    ]  # fmt: skip
    for command in commands:
        _, said = command.communicate(timeout=300)
        assert 0 == command.returncode, said
    assert 2 == answer(run("keys", "list", "--json"))["pagination"]["total_count"]


def test_a_damaged_registry_is_said_and_leaves_the_spool(run: Run, tmp_path: Path) -> None:
    """
    With a damaged registry, the exit code is 1 and the message says what to do. Commands for the queue still work.
    """
    run(*CREATE)
    for file in (tmp_path / "store").glob("registry.sqlite*"):
        file.unlink()
    (tmp_path / "store" / "registry.sqlite").write_bytes(b"not a database" * 1000)
    said = run("keys", "list", code=1).stderr
    assert "registry.sqlite is damaged" in said
    assert "The spool is not affected" in said
    assert "Restore this file from a backup" in said
    assert [] == answer(run("spool", "status", "--json"))["topics"]


def test_a_data_directory_that_cannot_be_is_exit_2(tmp_path: Path) -> None:
    """If a file exists in place of the data directory, the exit code is 2."""
    config = _configured(tmp_path)
    (tmp_path / "store").rmdir()
    (tmp_path / "store").write_text("")
    result = CliRunner().invoke(main, ["spool", "status", "--config", config])
    assert result.exit_code == 2, result.output
    assert "no data directory" in result.stderr, result.output


def test_a_wrong_configuration_is_exit_2(tmp_path: Path) -> None:
    """A wrong configuration ends with exit code 2. All problems are listed with the user's key names."""
    result = CliRunner().invoke(
        main, ["keys", "list", "--config", _configured(tmp_path, "spool.hold = 'long'")]
    )
    assert 2 == result.exit_code
    assert "spool.hold" in result.stderr


def test_the_key_of_the_deployment_is_listed(tmp_path: Path) -> None:
    """The key list has the key from server.api_key_file, if the command has --config FILE."""
    (tmp_path / "key").write_text("a-deployed-key")
    config = _configured(tmp_path, "server.api_key_file = 'key'")
    result = CliRunner().invoke(main, ["keys", "list", "--json", "--config", config])
    assert ["Legacy API Key"] == [key["name"] for key in answer(result)["keys"]]


def test_a_route_that_the_configuration_names_no_more_is_dropped_without_a_server(
    run: Run, tmp_path: Path
) -> None:
    """--config FILE names the routes, so the command can drop the others. With only --data DIR it cannot."""
    run("spool", "status")
    gone, stays = (RouteSpec(name=f"{name}/{AI_TELEMETRY}", topic=AI_TELEMETRY) for name in ("gone", "stays"))
    asyncio.run(_declared(tmp_path / "store", gone, stays))
    config = _configured(
        tmp_path,
        "[[destinations]]",
        "name = 'stays'",
        "type = 'ndjson'",
        "path = 'records'",
        "topics = ['ai-telemetry']",
    )
    assert "in the configuration" in run("spool", "route", "delete", gone.name, code=2).stderr

    def drop(name: str) -> int:
        return CliRunner().invoke(main, ["spool", "route", "delete", name, "--config", config]).exit_code

    assert drop(stays.name) == 2
    assert drop(gone.name) == 0
    routes = answer(run("spool", "status", "--json"))["routes"]
    assert [(stays.name, "running")] == [(route["route"], route["state"]) for route in routes]


async def _declared(directory: Path, *specs: RouteSpec) -> None:
    spool = await open_spool(directory, settings=SpoolSettings(), clock=SystemClock())
    await spool.deliveries.set_routes(specs)
    await spool.close()


def test_the_console_of_a_public_gateway_is_on_the_operators_listener(tmp_path: Path) -> None:
    """If `listen` is public, the operator API is on 127.0.0.1:4319 without TLS by default."""
    config = _configured(tmp_path, "[server]", "listen = '0.0.0.0:4318'")
    result = CliRunner().invoke(main, ["console", "link", "--config", config])
    assert "http://127.0.0.1:4319/console/" in result.output


@pytest.mark.parametrize(
    ("public", "expected"),
    [
        ("http://127.0.0.1:4319", "http://127.0.0.1:4319/console/#link="),
        ("https://ai.example.com/tollhouse/", "https://ai.example.com/tollhouse/console/#link="),
        ("http://127.0.0.1:4319/console/", "http://127.0.0.1:4319/console/#link="),
        ("127.0.0.1:4319", None),
        ("http://127.0.0.1:port", None),
        ("http://127.0.0.1:4319/#x", None),
    ],
)
def test_a_link_names_the_address_of_the_browser(run: Run, public: str, expected: str | None) -> None:
    """
    --public replaces the server's own address, for example by a published port or a proxy. An invalid address
    is a usage error.
    """
    result = run("console", "link", "--public", public, code=0 if expected else 2)
    if expected is None:
        assert "is not an address" in result.stderr
    else:
        assert re.fullmatch(rf"{re.escape(expected)}[\w-]{{20,}}\n", result.stdout)


def _configured(tmp_path: Path, *lines: str) -> str:
    (tmp_path / "store").mkdir(exist_ok=True)
    path = tmp_path / "tollhouse.toml"
    path.write_text("\n".join(['data_dir = "store"', *lines]))
    return str(path)


@pytest.mark.parametrize("depth", [1, 30])
def test_commands_reach_a_running_server(tmp_path: Path, depth: int) -> None:
    """
    Commands use the server's socket, even if the directory's path is too long for a socket. The change takes
    effect in the server.
    """
    gateway = tmp_path.joinpath(*(["store"] * depth))
    words = ("serve", "--data", str(gateway), "--listen", "127.0.0.1:0", "--grpc-listen", "")
    server = start_process([str(COMMAND), *words], cwd=tmp_path, is_read=True)
    try:
        assert server.stdout is not None and server.stderr is not None
        assert server.stdout.readline().startswith("listening on")
        runner = CliRunner()
        listed = runner.invoke(main, ["keys", "list", "--json", "--data", str(gateway)])
        assert 1 == answer(listed)["pagination"]["total_count"], listed.output
        created = runner.invoke(main, [*CREATE, "--json", "--data", str(gateway)])
        assert 0 == created.exit_code, created.output
        assert (depth > 1) == (gateway / "operator.path").exists()
        server.send_signal(signal.SIGKILL)
        server.wait()
        after = runner.invoke(main, ["keys", "list", "--json", "--data", str(gateway)])
        assert 2 == answer(after)["pagination"]["total_count"]
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None and server.stderr is not None
        server.stdout.close()
        server.stderr.close()


async def _delivered(directory: Path) -> None:
    """Create a queue whose upstream has accepted three records."""
    spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=SystemClock())
    await spool.deliveries.set_routes([RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)])
    await add(spool.log, *[call(number) for number in range(3)])
    delivery = await spool.deliveries.take_due_delivery(
        "upstream/ai-telemetry", now=SystemClock().now(), max_records=10
    )
    assert delivery is not None
    await spool.deliveries.store_settlement(delivery, Settlement(delivered=3))
    await spool.close()


@pytest.mark.proof
def test_replay_to_the_upstream_asks_for_a_confirmation(run: Run, tmp_path: Path) -> None:
    """
    Before a replay to the upstream, the command warns that the service may count the records twice. It sends
    them only after a yes or with --yes.
    """
    asyncio.run(_delivered(tmp_path / "store"))
    words = ("spool", "replay", "--route", "upstream/ai-telemetry", "--since", "1h", "--json")
    assert 3 == answer(run(*words, "--dry-run"))["replay"]["records"]
    refused = run(*words, input="n\n", code=1)
    assert "your cost service again, which may count them twice" in refused.stderr
    assert "" == refused.stdout
    assert 0 == answer(run("spool", "route", "list", "--json"))["routes"][0]["queued"]
    assert 3 == answer(run(*words, "--yes"))["replay"]["records"]
    # no record is added, because the records already wait to be sent
    assert "0 records will be sent again" in run(*words[:-1]).stdout


def test_a_server_that_accepts_nobody_ends_the_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a server listens but accepts no connection, because it has no free descriptor, the command gives up."""
    monkeypatch.setattr(operator_client, "PATIENCE_S", 0.3)
    monkeypatch.setattr(operator_client, "TURN_S", 0.3)
    lock = lock_directory(tmp_path / "store")
    try:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(tmp_path / "store" / "operator.sock"))
            silent.listen()
            assert "too busy to respond" in run("keys", "list", code=1).stderr
    finally:
        lock.release()


def test_tools_of_assistants_are_enabled_and_disabled(run: Run) -> None:
    """A tool of assistants is enabled or disabled by name, and the list shows who decided."""
    assert "get_budgets is disabled" in run("mcp", "tools", "disable", "get_budgets").stdout
    listed = answer(run("mcp", "tools", "list", "--enabled", "false", "--json"))["assistant_tools"]
    assert {"get_budgets", "log_insight", "set_org_context"} == {each["name"] for each in listed}
    [budgets] = [each for each in listed if each["name"] == "get_budgets"]
    assert local_address(Config()) == budgets["updated_by"]
    assert "there is no such tool" in run("mcp", "tools", "enable", "get_everything", code=2).stderr


def test_a_key_expires_when_a_command_says(run: Run) -> None:
    """
    The expiry of a key is given as a day, a time or a duration from now. It is shown, and can be moved and removed.
    """
    key = answer(run(*CREATE, "--expires-at", "2100-01-31", "--json"))["key"]
    assert "2100-02-01T00:00:00.000Z" == key["expires_at"]
    assert "2100-02-01" in run("keys", "show", "search team").stdout
    assert "EXPIRES AT" in run("keys", "list").stdout
    edited = answer(run("keys", "edit", "search team", "--expires-in", "90d", "--json"))["key"]
    in_days = (datetime.fromisoformat(edited["expires_at"]) - datetime.now(UTC)).total_seconds() / 86400
    assert 89 < in_days <= 90
    assert "expires_at" not in answer(run("keys", "edit", "search team", "--no-expiry", "--json"))["key"]
    assert "expires" not in run("keys", "show", "search team").stdout
    both = ("--expires-at", "2100-01-31", "--expires-in", "1d")
    assert "not both" in run("keys", "edit", "search team", *both, code=2).output
    assert "not both" in run("keys", "edit", "search team", "--no-expiry", *both[:2], code=2).output
    assert "future" in run("keys", "edit", "search team", "--expires-at", "2001-01-01", code=2).output
