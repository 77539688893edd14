"""The commands that documents show work in their order and print what the documents show."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from gateway.configuration.reader import load_config
from spool.registry.scopes import INGEST
from tests.acceptance.conftest import ROOT
from tests.documents import blocks
from tests.processes.copied import command_in
from tests.rounds import part

DOCUMENTS = (
    "README.md", "docs/quick-start.md", "docs/how-numbers-are-made.md", "docs/operations/upgrade.md",
    "docs/money/costs.md",
    "docs/money/work-costs.md", "docs/money/compare-costs.md",
    "docs/people/restricted-access.md", "docs/bills/billed-costs.md", "docs/connect/index.md", "docs/usage-events.md",
    "docs/operations/settings-as-files.md",
)  # fmt: skip
# pages whose commands another test runs, because they need a store, a broker, another program or a booted machine
ELSEWHERE = {
    "docs/operations": "tests/acceptance/lifecycle/test_operations.py",
    "docs/fleet/index.md": "tests/acceptance/test_policy.py",
    "docs/fleet/enrolment.md": "tests/acceptance/test_policy.py",
    "docs/fleet/coverage.md": "tests/acceptance/test_policy.py",
    "docs/fleet/probe.md": "tests/acceptance/test_policy.py",
    "docs/install/agent.md": "tests/deploy/test_agent_package.py",
    "docs/install/wheel.md": "tests/releases/test_wheel.py",
    "docs/connect": "tests/integration/test_connect_pages.py",
    "docs/lake/index.md": "tests/integration/lake",
    "docs/lake/verify.md": "tests/integration/lake",
    "docs/lake/maintenance.md": "tests/integration/lake",
    "docs/lake/kafka.md": "tests/clients",
    "docs/lake/clickhouse.md": "tests/clients",
    "docs/units-of-work.md": "tests/acceptance/test_links_from_ci.py",
}
CONFIGURATIONS = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "```toml" in path.read_text()
    # connect pages also show settings of other programs
    and not {"decisions", "reference", "connect"} & set(path.parts)
)
# the settings on the first page work only with those on the second
BESIDE = {"docs/mcp/sign-in.md": "docs/people/sign-in.md"}


def test_every_page_with_commands_is_followed() -> None:
    """A page's commands run in this module or in the test that ELSEWHERE names."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    with_commands = [
        page for page in pages if any(each.language == "sh" for each in blocks(page.read_text()))
    ]
    names = [str(page.relative_to(ROOT)) for page in with_commands]
    followed = (*DOCUMENTS, *ELSEWHERE)
    assert [] == [name for name in names if not name.startswith(followed)]
    assert [] == [test for test in ELSEWHERE.values() if not (ROOT / test).exists()]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", part(DOCUMENTS, every=3))
def test_commands_run_in_their_order(document: str, installations: Any) -> None:
    """
    Each command succeeds in a shell that stops at the first failure, and so does each request of curl. A JSON block
    must be part of the previous output.
    """
    tollhouse = installations(hold="1h")  # records stay open for later reports, however long a command takes
    key = tollhouse.key("reader", "--scope", INGEST, "--scope", "billing:read_costs")
    # without --config, commands in this directory use its ./tollhouse-data
    reader = tollhouse.directory / "reader"
    reader.mkdir()
    (reader / "tollhouse-data").symlink_to(tollhouse.directory / "tollhouse-data")
    commands = tollhouse.directory / "commands"
    commands.mkdir()
    # without it, curl prints a refusal and exits with 0
    (commands / ".curlrc").write_text("fail-with-body\n")
    number = command_in(commands)
    env = {
        **os.environ,
        "CURL_HOME": str(commands),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "TOLLHOUSE_KEY": key,
        "TOLLHOUSE_URL": tollhouse.start(),
        "XDG_STATE_HOME": str(reader / "state"),
    }
    printed, ran = "", 0
    for block in blocks((ROOT / document).read_text()):
        if block.language == "sh":
            done = subprocess.run(
                ["bash", "-euc", block.text], cwd=reader, env=env, capture_output=True, text=True, timeout=600,
                pass_fds=[number],
            )  # fmt: skip
            assert 0 == done.returncode, f"{block.text}\n{done.stdout}\n{done.stderr}"
            printed, ran = done.stdout, ran + 1
        elif block.language == "json":
            assert_part(json.loads(block.text), json.loads(printed))
    assert ran
    if "tollhouse send" in (ROOT / document).read_text():
        assert json.loads(tollhouse.run("spool", "verify", "--json"))["topics"]["ai-telemetry"]["accepted"]


def assert_part(expected: Any, found: Any) -> None:
    """Check that `found` has the members of `expected`; lists must have equal lengths."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert_part(value, found[name])
    elif isinstance(expected, list):
        for one, other in zip(expected, found, strict=True):
            assert_part(one, other)
    else:
        assert expected == found


@pytest.mark.parametrize("document", CONFIGURATIONS)
def test_configurations_load(document: str, tmp_path: Any) -> None:
    other = BESIDE.get(document)
    begin = next(iter(configurations(other))) if other else ""
    for text in configurations(document):
        path = tmp_path / "tollhouse.toml"
        path.write_text(f"{begin}\n{text}")
        load_config(path, env={})


def configurations(document: str) -> list[str]:
    return [block.text for block in blocks((ROOT / document).read_text()) if block.language == "toml"]
