"""Alerts and dashboards parse, alerts fire when they must, and both name existing metrics."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from gateway.monitoring.snapshot import FIGURES, Snapshot
from gateway.monitoring.spend import SpendCounts
from tests.acceptance.conftest import COMMAND, ROOT, Tollhouse
from tests.acceptance.test_metrics import scraped
from tests.gateway.monitoring.test_metrics import DATABASE, STATS
from tests.processes.copied import run_process
from tests.tools import program

RULES = ROOT / "deploy/prometheus/rules.yaml"
CASES = ("rules.test.yaml", "rules.hours.test.yaml")
RUNBOOKS = (ROOT / "docs/operations/runbooks.md").read_text()
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
METRIC = re.compile(r"\btollhouse_\w+")
# the series of the code's table by figure, some of which exist only with a budget, a channel or a shared PostgreSQL
SERIES = {figure: f"tollhouse_{figure.name}{'_total' if figure.is_counter else ''}" for figure in FIGURES}
OF_DATABASE = {
    name
    for figure, name in SERIES.items()
    if figure.samples(Snapshot(stats=STATS)) is None
    and figure.samples(Snapshot(stats=STATS, database=DATABASE)) is not None
}
# metrics that exist only with `server.metrics_names` or with the compiled module
ONLY_SOMETIMES = {
    "tollhouse_spans_decoded_total",
    *(f"{one.name}{'_total' if one.type == 'counter' else ''}" for one in SpendCounts(1).metric_families()),
}


def promtool(*words: str | Path) -> None:
    """Run promtool. Raises AssertionError with its output."""
    found = program("promtool", "prometheus/usr/bin/promtool")
    done = subprocess.run([found, *words], cwd=RULES.parent, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr


def test_rules_are_valid_and_fire_when_they_must() -> None:
    """
    promtool checks the syntax, and for each alert a case in which it fires and one in which it does not.
    """
    promtool("check", "rules", RULES)
    promtool("test", "rules", *CASES)


def test_each_alert_has_its_cases_and_its_runbook() -> None:
    """
    Each alert has a firing case with labels and annotations, and its runbook address leads to a section.
    """
    cases = [case for name in CASES for case in yaml.safe_load((RULES.parent / name).read_text())["tests"]]
    fires = {one["alertname"] for case in cases for one in case["alert_rule_test"] if one.get("exp_alerts")}
    sections = {line.removeprefix("## ") for line in RUNBOOKS.splitlines() if line.startswith("## ")}
    names = {alert["alert"] for alert in ALERTS}
    assert names == fires
    assert names == sections
    for alert in ALERTS:
        assert {"summary", "description", "runbook_url"} == set(alert["annotations"])
        assert f"docs/operations/runbooks.md#{alert['alert'].lower()}" == alert["annotations"]["runbook_url"]
        assert alert["labels"]["severity"] in ("critical", "warning", "info")


def dashboard(name: str = "tollhouse") -> Any:
    return json.loads((ROOT / f"deploy/grafana/{name}.json").read_text())


def dashboards() -> list[Any]:
    return [dashboard(file.stem) for file in sorted((ROOT / "deploy/grafana").iterdir())]


def queries() -> list[str]:
    """Return the queries of the dashboards' panels in the form that Prometheus gets."""
    panels = [panel for each in dashboards() for panel in each["panels"]]
    listed = [each for panel in panels for each in (panel, *panel.get("panels", ()))]
    panels = [panel for panel in listed if panel["type"] != "row"]
    assert all(panel["title"] and panel["targets"] for panel in panels)
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [expr.replace("$__rate_interval", "5m").replace("$instance", ".*") for expr in found]


def test_what_only_a_shared_storage_has_is_folded() -> None:
    """Without PostgreSQL these panels would be empty, so they are in a collapsed row."""
    shown = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    assert shown
    assert OF_DATABASE
    assert set() == {name for expr in shown for name in METRIC.findall(expr)} & OF_DATABASE
    folded = [panel for panel in dashboard()["panels"] if panel.get("collapsed")]
    assert folded and all(panel["panels"] for panel in folded)


def test_dashboards_have_names_of_their_own_and_one_place_for_each_panel() -> None:
    """Grafana identifies a dashboard by its uid, and a panel by its id."""
    assert {"tollhouse", "tollhouse-spend"} == {each["uid"] for each in dashboards()}
    for each in dashboards():
        listed = [panel for row in each["panels"] for panel in (row, *row.get("panels", ()))]
        assert len(listed) == len({panel["id"] for panel in listed})
        assert len(listed) == len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in listed})


def test_the_queries_of_the_dashboards_are_valid(tmp_path: Path) -> None:
    """promtool accepts each query as a rule."""
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)


def test_alerts_and_dashboards_name_metrics_that_exist(installations: Any) -> None:
    """A metric of a new server that is renamed in the code must be renamed here as well."""
    tollhouse: Tollhouse = installations()
    tollhouse.start()
    shown = set(scraped(tollhouse))
    named = {
        name for text in (*(alert["expr"] for alert in ALERTS), *queries()) for name in METRIC.findall(text)
    }
    assert set() == named - shown - {*SERIES.values()} - ONLY_SOMETIMES


def test_the_commands_of_the_runbooks_exist() -> None:
    """Each runbook command exists with its options."""
    commands = set(re.findall(r"`(tollhouse [^`]+)`", RUNBOOKS))
    assert len(commands) > 10
    for command in commands:
        words = [word for word in command.split()[1:] if word.islower() and not word.startswith("-")]
        options = [word for word in command.split() if word.startswith("--")]
        verbs = [*words]
        while verbs:
            done = run_process([str(COMMAND), *verbs, "--help"], cwd=ROOT)
            if done.returncode == 0:
                break
            verbs.pop()  # the last word of this sentence is an argument, not a verb
        assert verbs and "Commands:" not in done.stdout, command
        assert [] == [option for option in options if option not in done.stdout], command
