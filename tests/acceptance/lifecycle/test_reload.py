"""Changes of the configuration of a running server, by SIGHUP and `tollhouse reload`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.cli.operator.client import OperatorClient
from gateway.configuration.reader import load_config as load_config
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.lifecycle.load import Tally, load
from tests.acceptance.payloads import post, request, span
from tests.waiting import wait_until

ARCHIVE = '[[destinations]]\nname = "archive"\ntype = "ndjson"\npath = "records.ndjson"\n'
SECOND = '[[destinations]]\nname = "second"\ntype = "ndjson"\npath = "second.ndjson"\n'
CONNECTIONS = 6

Installations = Callable[..., Tollhouse]


def configure(
    one: Tollhouse, *, team: str = "", price: str = "", more: str = ARCHIVE, server: str = ""
) -> None:
    """Replace the configuration in one step, like an editor."""
    text = f'[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\n{server}\n[spool]\nhold = "0s"\n{more}'
    if team:
        text += f'[[attribution]]\nmatch = {{ model = "gpt-4o*" }}\nset = {{ team = "{team}" }}\n'
    if price:
        text += f'[[prices.override]]\nmodel = "gpt-4o*"\ninput = {price}\noutput = 0\n'
    draft = one.config.with_suffix(".new")
    draft.write_text(text)
    draft.rename(one.config)


def send(one: Tollhouse, key: str, id: str) -> dict[str, Any]:
    """Send one call of 1,000 tokens; return its line in the record file."""
    assert 200 == post(one.url, request([span(f"chatcmpl-{id}-00000000000", tokens=1000)]), key).status
    one.wait_until_drained()
    return one.records()[-1]


def logged(one: Tollhouse, action: str) -> int:
    return sum(f'"action":"{action}"' in line for line in one.log)


@contextmanager
def noted(one: Tollhouse, action: str = "reloaded") -> Iterator[None]:
    """Wait for the log line that the block causes, so that a later wait does not match this line."""
    before = logged(one, action)
    yield
    wait_until(lambda: logged(one, action) > before, action)


def hang_up(one: Tollhouse, action: str = "reloaded") -> None:
    """Send SIGHUP and wait for its result."""
    assert one.process is not None
    with noted(one, action):
        one.process.send_signal(signal.SIGHUP)


def served(tally: Tally) -> None:
    """Wait for more requests than there are connections, so that some started after this moment."""
    before = tally.acknowledged
    wait_until(lambda: tally.acknowledged > before + CONNECTIONS, "calls")


@pytest.mark.proof
def test_no_request_fails_over_twenty_reloads(installations: Installations) -> None:
    """Prices, attribution and destinations change under load, by signal and by command. The accounting balances."""
    one = installations()
    configure(one)
    key = one.key("load")
    one.start()
    with load(one.url, key, connections=CONNECTIONS) as tally:
        for number in range(20):
            more = ARCHIVE + SECOND if number % 4 < 2 else ARCHIVE
            configure(one, team=f"team-{number}", price=str(number + 1), more=more)
            if number % 2:
                with noted(one):
                    assert "changed: attribution" in one.run("reload")
            else:
                hang_up(one)
            served(tally)
    assert {} == dict(tally.failed)
    assert 20 == logged(one, "reloaded")
    one.wait_until_drained()
    records = one.records()
    assert tally.records == len(records) == len({record["id"] for record in records})
    assert {f"team-{number}" for number in range(20)} <= {record["team"] for record in records}
    assert one.json("spool", "verify")["balanced"]


def test_records_are_priced_and_attributed_by_the_configuration_of_their_moment(
    installations: Installations,
) -> None:
    """
    Old prices apply before a reload, new prices after it. The command prints the changes, and they are audited.
    """
    one = installations()
    configure(one, team="first", price="2")
    key = one.key("sender")
    one.start()
    record = send(one, key, "one")
    assert record["team"] == "first"
    assert record["estimated_cost"] == "0.002"
    configure(one, team="second", price="3")
    printed = one.run("reload", "--as", "ada@example.com").splitlines()
    assert ["changed: prices.override", "changed: attribution"] == printed[:2]
    record = send(one, key, "two")
    assert record["team"] == "second"
    assert record["estimated_cost"] == "0.003"
    assert "nothing has changed\n" == one.run("reload")
    rows = OperatorClient(load_config(one.config, env={}), "tests").request("GET", "/audit")["audit"]
    audited = next(row for row in rows if row["action"] == "configuration.reload")
    assert audited["actor"] == "ada@example.com"
    assert audited["after"]["changed"][:2] == ["prices.override", "attribution"]


def test_a_bad_configuration_is_refused_with_every_problem(installations: Installations) -> None:
    """
    A reload with a bad configuration ends with exit code 2 and one line per problem. After SIGHUP the log has
    the same lines. The old configuration stays active.
    """
    one = installations()
    configure(one, team="first")
    key = one.key("sender")
    one.start()
    configure(
        one, team="second", server='api_key_file = "missing"\ntls_cert_file = "a.pem"\ntls_key_file = "b.pem"'
    )
    with one.config.open("a") as file:
        file.write('[prices]\nfile = "no-card.json"\n')
    with noted(one, "reload_refused"):
        done = one.attempt("reload", "--data", str(one.directory / "tollhouse-data"), config=False)
    assert done.returncode == 2
    assert done.stdout == ""
    for named in ("server.api_key_file", "server.tls_cert_file", "prices.file"):
        assert named in done.stderr, done.stderr
    hang_up(one, "reload_refused")
    assert "no-card.json" in next(line for line in one.log if "reload_refused" in line)
    assert "first" == send(one, key, "one")["team"]
    one.config.write_text('listen = "nowhere"\n[upstream]\nbase_url = 7\n')
    done = one.attempt("reload", "--data", str(one.directory / "tollhouse-data"), config=False)
    assert done.returncode == 2
    assert "unknown key listen" in done.stderr
    assert "upstream.base_url" in done.stderr
    assert "first" == send(one, key, "two")["team"]


def test_reload_lists_settings_that_need_a_restart_until_then(installations: Installations) -> None:
    """If settings need a restart, every reload lists them until the restart."""
    one = installations()
    configure(one)
    key = one.key("sender")
    one.start()
    configure(one, team="second", server='max_body_bytes = "1MiB"')
    assert "changed: attribution\nneeds a restart: server.max_body_bytes\n" == one.run("reload")
    assert "second" == send(one, key, "one")["team"]
    assert "needs a restart: server.max_body_bytes\n" == one.run("reload")
    one.stop()
    one.start()
    assert "nothing has changed\n" == one.run("reload")


def test_destinations_come_and_go(installations: Installations) -> None:
    """
    A new destination starts with all stored records. A removed destination is orphaned and keeps its position. If
    it is added again, it resumes there.
    """
    one = installations()
    configure(one)
    key = one.key("sender")
    one.start()
    send(one, key, "one")
    configure(one, more=SECOND)
    with noted(one):
        assert "changed: destinations\n" == one.run("reload")
    second = one.directory / "second.ndjson"
    wait_until(lambda: second.exists() and second.read_text().count("\n") == 1, "the second file")
    assert 200 == post(one.url, request([span("chatcmpl-two-00000000000000")]), key).status
    wait_until(lambda: second.read_text().count("\n") == 2, "the second record")
    assert one.route("archive/ai-telemetry")["state"] == "orphaned"
    assert one.queued("archive/ai-telemetry") == 1
    configure(one, more=ARCHIVE + SECOND)
    hang_up(one)
    one.wait_until_drained()
    assert 2 == len(one.records())
    assert one.json("spool", "verify")["balanced"]


def test_without_a_server_there_is_nothing_to_reload(installations: Installations) -> None:
    """
    Without a server, `reload` ends with exit code 1, because a server reads its configuration at its start.
    """
    one = installations()
    done = one.attempt("reload")
    assert done.returncode == 1
    assert "no server runs here" in done.stderr


@pytest.mark.parametrize("how", ["signal", "command"])
def test_changed_secret_resumes_a_paused_route_at_once(installations: Installations, how: str) -> None:
    """
    A reload reads two secrets again: the upstream's key and the deployment's own key. The previous own key is
    refused from then on.
    """
    one = installations()
    (one.directory / "key").write_text("first-key-of-the-deployment\n")
    configure(one, server='api_key_file = "key"')
    one.start()
    assert (
        200
        == post(one.url, request([span("chatcmpl-one-0000000000000")]), "first-key-of-the-deployment").status
    )
    (one.directory / "key").write_text("second-key-of-the-deployment\n")
    if how == "signal":
        hang_up(one)
    else:
        # the server polls the file every few seconds, so it may have found the change first
        assert one.run("reload") in ("changed: the key of server.api_key_file\n", "nothing has changed\n")
    statuses = [
        post(one.url, request([span("x")]), f"{n}-key-of-the-deployment").status for n in ("first", "second")
    ]
    assert [401, 200] == statuses
