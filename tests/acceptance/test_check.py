from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from tests.acceptance.test_chain import chained


def test_check_sends_an_empty_export_and_skips_unset_streams(installations: Any, tmp_path: Path) -> None:
    """`check` sends an empty export to OTLP endpoints, and skips streams without settings."""
    near, _, _ = chained(installations, tmp_path)
    found = {row["stream"]: row for row in near.json("check")["upstream"]}
    assert found["traces"]["status"] == "ok"
    assert found["traces"]["key"] == "telemetry"
    assert "ok" == found["metrics"]["status"]
    assert {"traces", "metrics"} == found.keys()


def test_check_names_the_stream_without_a_key(installations: Any, tmp_path: Path) -> None:
    """`check` names a published stream that no key covers."""
    near, _, _ = chained(installations, tmp_path)
    near.config.write_text(near.config.read_text() + '[[publish]]\nstream = "cost-per-team"\n')
    assert "paused: no key has the use case unit-cost_v1:manage_telemetry_records" in near.run("check")


def test_check_reports_mapped_event_types_and_billing_validation(installations: Any, tmp_path: Path) -> None:
    """
    `check` says which event types are mapped if the upstream accepts no events, and whether the upstream
    validates billing files.
    """
    near, far, _ = chained(installations, tmp_path)
    (tmp_path / "billing.key").write_text(far.key("billing", "--use-case", "Send Billing Data") + "\n")
    one = near.config.read_text()
    billing = f'[[upstream.keys]]\nname = "billing"\nsecret_file = "{tmp_path}/billing.key"\n'
    near.config.write_text(
        f'{one}{billing}use_cases = ["Send Billing Data"]\n[upstream.events.login]\nstream = "logins"\n'
    )
    said = near.attempt("check").stdout
    assert "events       mapped: login; all other types are unmapped: stored here and not sent\n" in said
    assert "billing-validation  under key 'billing': ok" in said
    far.run("keys", "disable", "billing")
    [found] = [row for row in near.json("check", code=1)["upstream"] if row["stream"] == "billing-validation"]
    assert "refused" == found["status"]
    assert "; billing files are then validated only by this gateway" in near.attempt("check").stdout
    near.config.write_text(near.config.read_text().replace("[upstream]", '[upstream]\nkind = "tollhouse"'))
    assert "unmapped" not in near.attempt("check").stdout  # a Tollhouse upstream needs no mapping of events


def test_check_fails_for_a_disabled_key(installations: Any, tmp_path: Path) -> None:
    """If the upstream disabled the key, `check` reports the upstream's message."""
    near, far, _ = chained(installations, tmp_path)
    far.run("keys", "disable", "near tollhouse")
    found = {row["stream"]: row for row in near.json("check", code=1)["upstream"]}
    assert "refused" == found["traces"]["status"]
    assert "disabled" in found["traces"]["words"]


def test_check_says_that_there_is_no_data_directory_yet(installations: Any) -> None:
    """Without a data directory, `check` names the next step, and does not create the directory."""
    new = installations()
    shutil.rmtree(new.data)
    assert f"data         {new.data}: not created yet; `tollhouse serve` creates it" in new.run("check")
    assert new.json("check")["has_data_dir"] is False
    assert not new.data.exists()


def test_check_without_an_upstream(installations: Any) -> None:
    assert "stored, priced and shown here" in installations().run("check")


def test_check_names_addresses_that_restrict_no_key(installations: Any) -> None:
    """
    `check` warns of a misspelled name in server.key_addresses, because it restricts no key. Only the running server
    can see this.
    """
    house = installations(server='key_addresses = { "claude api" = ["198.51.100.0/24"] }')
    house.start()
    said = "server.key_addresses.claude api matches no key, so it restricts nothing"
    assert [said] == [warning for warning in house.json("check")["warnings"] if "key_addresses" in warning]
    house.key("claude api", "--use-case", "Send AI Telemetry")
    assert said not in house.run("check")
    assert "198.51.100.0/24" in house.run("keys", "show", "claude api")


def test_check_on_an_agent_reports_whether_its_gateway_is_reachable(
    installations: Any, tmp_path: Path
) -> None:
    """`check` on an agent reports whether its gateway, which is the agent's upstream, can be reached."""
    gateway = installations("gateway")
    config = f'data_dir = "{tmp_path}/agent"\n[agent]\ngateway = "{gateway.start()}"\n'
    agent = installations("agent", config=config)
    assert "to http://127.0.0.1" in agent.run("check") and "upstream" not in agent.run("check")
    gateway.stop()
    assert "unavailable" == agent.json("check", code=1)["destinations"][0]["status"]


def test_check_reports_missing_files(installations: Any, tmp_path: Path) -> None:
    """`check` reports a missing secret file, so that the operator learns of it before the first delivery."""
    more = (
        '[upstream]\nbase_url = "http://127.0.0.1:9"\n[[upstream.keys]]\nname = "k"\nsecret_file = "none"\n'
    )
    tollhouse = installations(more=more + 'use_cases = ["Send AI Telemetry"]\n')
    assert "cannot read" in tollhouse.json("check", code=1)["problems"][0]


def test_check_reads_the_secrets_of_destinations(installations: Any, tmp_path: Path) -> None:
    """`check` reports an empty secret, because it would pause the destination's route."""
    (tmp_path / "empty").touch()
    hook = '[[destinations]]\nname = "hook"\ntype = "webhook"\nurl = "http://127.0.0.1:9"\n'
    tollhouse = installations(more=f'{hook}secret_file = "{tmp_path / "empty"}"\n')
    (problem,) = tollhouse.json("check", code=1)["problems"]
    assert f"destinations[1].secret_file: {tmp_path / 'empty'} must contain one secret on one line" == problem


def test_check_tries_destinations(installations: Any, tmp_path: Path) -> None:
    """An unwritable file fails the check. The message states the effect on its records."""
    tollhouse = installations(more=f'[[destinations]]\nname = "bad"\ntype = "ndjson"\npath = "{tmp_path}"\n')
    found = {row["name"]: row["status"] for row in tollhouse.json("check", code=1)["destinations"]}
    assert {"archive": "ok", "bad": "refused"} == found
    words = "is not a file that can be written; records would wait here until that is fixed"
    assert words in tollhouse.run("check", code=1)


def test_check_reads_the_secrets_of_the_doors(installations: Any) -> None:
    """`check` reports problems that prevent a start, each with its setting."""
    tollhouse = installations(more='[sources.helicone]\nsigning_secret_file = "none"\n')
    (problem,) = tollhouse.json("check", code=1)["problems"]
    assert problem.startswith("sources.helicone.signing_secret_file: ") and "cannot read" in problem


def test_check_reads_the_rate_card(installations: Any) -> None:
    """A missing rate card and an unknown stream of upstream.paths are reported without a traceback."""
    one = installations(more='[prices]\nfile = "no-card.json"')
    assert "prices.file: " in one.run("check", code=1)
    one.config.write_text(one.config.read_text() + '[upstream.paths]\nnothing = "/x"\n')
    done = one.attempt("check")
    assert done.returncode == 2
    assert "'nothing' is not a stream" in done.stderr


def test_check_continues_after_brokers_that_do_not_answer(installations: Any) -> None:
    """If a broker does not answer, one line reports the broker, and the next destination is checked."""
    kafka = '[[destinations]]\nname = "bus"\ntype = "kafka"\nurl = "127.0.0.1:9"\ntls = false\n'
    tollhouse = installations(
        more=kafka + '[[destinations]]\nname = "last"\ntype = "ndjson"\npath = "last.ndjson"\n'
    )
    done = tollhouse.attempt("check")
    assert 1 == done.returncode
    assert "Traceback" not in done.stderr
    bus, last = [line for line in done.stdout.splitlines() if "bus " in line or "last " in line]
    assert "to 127.0.0.1:9: unavailable: ConnectionRefused" in bus
    assert last.endswith(": ok")


def test_check_proves_that_a_far_tollhouse_accepts_records(installations: Any, tmp_path: Path) -> None:
    """
    Without `chain_keys` at the far side, `check` once reported ok although every record was rejected. With
    `chain_keys` the test call is accepted, found by its receipt, and not counted.
    """
    near, far, _ = chained(installations, tmp_path)
    listed = far.config.read_text()
    far.config.write_text(listed.replace("chain_keys", "# chain_keys"))
    far.run("reload")
    for words in (("check",), ("check", "--send")):
        found = {row["stream"]: row for row in near.json(*words, code=1)["upstream"]}
        assert "refused" == found["traces"]["status"]
        assert "server.chain_keys" in found["traces"]["words"]
    assert "rejects the test call" in near.attempt("doctor").stdout
    far.config.write_text(listed)
    far.run("reload")
    found = {row["stream"]: row for row in near.json("check", "--send")["upstream"]}
    id = re.search(r"does not count it \(receipt (\S+) there\)", found["traces"]["words"])
    assert id is not None
    receipt = far.json("spool", "receipt", id[1])["receipt"]
    assert (1, 0, {"check": 1}, {}) == tuple(
        receipt[name] for name in ("received", "records", "ignored", "rejected")
    )
    assert [] == far.records()
    far.json("spool", "verify")
