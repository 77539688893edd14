"""The data and the public names of each release are as later builds need them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.conftest import installations as installations
from tests.acceptance.test_devices import FLEET, Agent
from tests.processes.copied import ROOT
from tests.releases import public
from tests.releases.make import (
    AGENT_CONFIGURATION,
    CONFIGURATION,
    DUMP,
    NOWHERE,
    UnequalSum,
    accepted,
    make,
    manifest_of,
    postgres,
    restored_dump,
    totals,
)
from tests.waiting import wait_until

RELEASES = sorted(path.name for path in (ROOT / "tests/releases").glob("*.*.*"))
NOW = "this build"
Copy = Callable[[str], Tollhouse]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("made")
    make(work / NOW, work)
    return work / NOW


@pytest.fixture(params=[*RELEASES, NOW])
def stored(request: pytest.FixtureRequest) -> Path:
    """Return the directory of a release, or what this build makes of itself."""
    made: Path = (
        ROOT / "tests/releases" / request.param if request.param != NOW else request.getfixturevalue("made")
    )
    return made


@pytest.mark.proves("data directory, PostgreSQL schema, backup, archive")
def test_this_build_opens_all_parts_with_equal_totals(stored: Path, tmp_path: Path) -> None:
    """The data directory, the backup and the archive have the totals of the manifest, and the settings are equal."""
    manifest = manifest_of(stored)
    stored = shutil.copytree(stored, tmp_path / "stored")
    for path in stored.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)  # Git stores other file modes than a data directory has
    expected = {name: manifest[name] for name in ("accepted", "rows")}

    def installation(name: str) -> Tollhouse:
        return Tollhouse(tmp_path / name, (stored / CONFIGURATION).read_text())

    killed = installation("killed")
    shutil.copytree(stored / "data", killed.data, dirs_exist_ok=True)
    assert expected == totals(killed)
    killed.run("plan", str(stored / "settings"))
    restored = installation("restored")
    restored.run("restore", str(stored / "backup"), "--no-erasures")
    assert expected["accepted"] == totals(restored)["accepted"]
    imported = installation("imported")
    imported.data.rmdir()
    imported.run("storage", "import", str(stored / "archive"))
    assert expected == totals(imported)
    shutil.copytree(stored / "lake", killed.directory / "lake")
    killed.run("lake", "verify", "--data")


@pytest.mark.proves("data directory, PostgreSQL schema, backup, archive")
def test_this_build_opens_the_dump_with_equal_totals(stored: Path, tmp_path: Path) -> None:
    if not (stored / DUMP).exists():
        pytest.skip("it was made on a machine without PostgreSQL")
    manifest = manifest_of(stored)
    with postgres() as server:
        restored = restored_dump(stored, tmp_path / "restored", server)
        assert {name: manifest[name] for name in ("accepted", "rows")} == totals(restored)


def test_this_build_delivers_what_an_agent_has(stored: Path, installations: Any, tmp_path: Path) -> None:
    """
    An agent's directory from the release is opened by this build, and its waiting call arrives at a gateway once.
    """
    manifest = manifest_of(stored)
    gateway: Tollhouse = installations("gateway")
    key = gateway.key("fleet", *FLEET)
    config = (stored / AGENT_CONFIGURATION).read_text().replace(NOWHERE, gateway.start())
    agent: Agent = installations("laptop", config=config, kind=Agent)
    (agent.directory / "enrolment.key").write_text(key)
    shutil.copytree(stored / "agent", agent.data, dirs_exist_ok=True)
    for path in agent.data.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)  # Git stores other file modes than a data directory has
    assert manifest["agent"] == accepted(agent)
    agent.start()
    wait_until(agent.drained, "the call of the agent")
    arrived = gateway.asked("/books")["topics"]["ai-telemetry"]["accepted"]
    assert manifest["agent"]["ai-telemetry"] == arrived == 1


def test_no_public_name_is_removed(stored: Path) -> None:
    names = (stored / "public.txt").read_text().splitlines()
    assert [] == public.describe_removed(manifest_of(stored)["version"], names, public.names())


def test_a_file_with_another_sum_is_refused(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / made.name
    shutil.copytree(made, copy)
    (copy / CONFIGURATION).write_text("")
    (copy / "more").touch()
    with pytest.raises(UnequalSum, match=r"configuration\.toml, more$"):
        manifest_of(copy)


NAMES = """
operation GET /v2/budgets
field BudgetItem.id
parameter GET /v2/budgets limit
scope budgets:read_budget
command tollhouse keys create
option tollhouse keys create --name
exit-code tollhouse plan 2
metric tollhouse_refused_requests
label tollhouse_refused_requests type
log-action native_missing
log-field route
setting spool.hold
file-field budgets alerts
lake-column input_tokens
wire tollhouse.cost
"""


@pytest.mark.proves("attributes that Tollhouse sends to another Tollhouse (`tollhouse.*`)")
@pytest.mark.proves("columns of the data lake")
@pytest.mark.proves("`tollhouse.toml` and settings as files")
@pytest.mark.proves("names and labels of metrics, fields and `action` of log lines")
@pytest.mark.proves("operator API, `--json`, commands, options and exit codes")
@pytest.mark.proves("published API, scopes, addresses of receivers")
def test_a_removed_name_of_each_kind_is_reported() -> None:
    now = public.names()
    assert {name.split()[0] for name in now} == {name.split()[0] for name in NAMES.split("\n") if name}
    for name in NAMES.strip().split("\n"):
        assert [f"{name}: public since 0.1.0"] == public.describe_removed("0.1.0", now, now - {name})
