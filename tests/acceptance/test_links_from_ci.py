"""The jobs of deploy/ci: calls on a branch or a commit count for the pull request."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.documents import ROOT, blocks, parsed_yaml
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "curl", "jq")),
    reason="the jobs need bash, curl and jq",
)
BLOCKS = blocks((ROOT / "docs/units-of-work.md").read_text())
GITHUB, GITLAB = (parsed_yaml((ROOT / f"deploy/ci/{name}.yaml").read_text()) for name in ("github", "gitlab"))
COMMIT = "9fceb02d0ae598e95dc970b74767f19372d61af8"
TODAY = "2000-01-01T00:00:00Z"
PULL_REQUEST = "acme/shop#42"
GITHUB_EVENT = {
    "github.head_ref": 'fix-"totals"',
    "github.event.pull_request.head.repo.full_name": "ada/shop",
    "github.event.pull_request.html_url": "https://github.com/acme/shop/pull/42",
    "github.event.pull_request.created_at": TODAY,
}
MERGED = "github.event.pull_request.merged && github.event.pull_request.merge_commit_sha || ''"


class Runner:
    """Runs jobs against one gateway."""

    def __init__(self, tollhouse: Tollhouse) -> None:
        self.tollhouse = tollhouse
        self.calls_key = tollhouse.key("calls")
        _, *words = next(block.text for block in BLOCKS if "keys create" in block.text).split()
        self.key = tollhouse.json(*words)["secret"]
        self.url = tollhouse.start()

    def run(self, script: str, environment: Mapping[str, str]) -> None:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def call(self, number: int, **stated: Any) -> None:
        answer = post(self.url, request([span(f"chatcmpl-{number:024}", **stated)]), self.calls_key)
        assert answer.status == 200, answer.data

    def links(self) -> list[dict[str, Any]]:
        rows = self.tollhouse.asked("/work/links")["work_links"]
        names = ("branch", "repository", "commit", "since", "until", "pull_request", "author")
        return sorted([{name: row[name] for name in names if row[name]} for row in rows], key=str)

    def calls(self) -> dict[str | None, int]:
        self.tollhouse.wait_until_drained()
        rows = self.tollhouse.asked("/report?by=pull_request&show=calls&range=last_7d")["rows"]
        return {row["pull_request"]: row["calls"] for row in rows}


@pytest.fixture
def runner(installations: Any) -> Runner:
    return Runner(installations())


def of_github(event: Mapping[str, str], runner: Runner) -> dict[str, str]:
    """Return the environment of the job with the expressions of GitHub filled in. An unknown value is empty."""
    values = {**event, "vars.TOLLHOUSE_URL": runner.url, "secrets.TOLLHOUSE_EVENTS_KEY": runner.key}
    environment = GITHUB["jobs"]["link"]["env"]
    return {
        name: re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values.get(found[1], ""), text)
        for name, text in environment.items()
    }


def test_github_links_branch_and_merge_commit(runner: Runner) -> None:
    """The CI job runs when the pull request is opened, and again when it is merged."""
    [step] = GITHUB["jobs"]["link"]["steps"]
    branch = {"vcs__ref__head__name": GITHUB_EVENT["github.head_ref"], "vcs__repository__name": "ada/shop"}
    runner.call(1, **branch)
    runner.call(2, vcs__ref__head__revision=COMMIT)
    runner.call(3)
    runner.run(step["run"], of_github(GITHUB_EVENT, runner))
    linked = {
        "branch": GITHUB_EVENT["github.head_ref"],
        "repository": "ada/shop",
        "since": "2000-01-01",
        "pull_request": PULL_REQUEST,
        "author": "ci-links",
    }
    assert [linked] == runner.links()
    wait_until(lambda: runner.calls() == {PULL_REQUEST: 1, None: 2}, "the linked branch")
    merged = {**GITHUB_EVENT, "github.event.pull_request.closed_at": "2100-01-01T00:00:00Z", MERGED: COMMIT}
    for _ in range(2):  # a CI job may run again, so link the pull request twice
        runner.run(step["run"], of_github(merged, runner))
    commit = {"commit": COMMIT, "pull_request": PULL_REQUEST, "author": "ci-links"}
    assert [{**linked, "until": "2100-01-01"}, commit] == runner.links()
    runner.call(4, **branch)
    wait_until(lambda: runner.calls() == {PULL_REQUEST: 3, None: 1}, "the linked commit")


def test_gitlab_links_branch_and_merge_commit(runner: Runner) -> None:
    """The first CI job runs for a merge request, the second one after the merge."""
    # the commands before the job's script, without the installation of packages
    before = "\n".join(GITLAB[".link"]["before_script"][1:])
    environment = {"TOLLHOUSE_URL": runner.url, "TOLLHOUSE_EVENTS_KEY": runner.key}

    def run(job: str, **variables: str) -> None:
        [script] = GITLAB[job]["script"]
        runner.run(f"{before}\n{script}", environment | variables)

    runner.call(1, vcs__ref__head__name="fix-totals", vcs__repository__name="acme/shop")
    runner.call(2, vcs__ref__head__revision=COMMIT)
    run(
        "link-branch",
        CI_MERGE_REQUEST_SOURCE_BRANCH_NAME="fix-totals",
        CI_MERGE_REQUEST_SOURCE_PROJECT_PATH="acme/shop",
        CI_MERGE_REQUEST_PROJECT_PATH="acme/shop",
        CI_MERGE_REQUEST_IID="42",
    )
    linked = {
        "branch": "fix-totals",
        "repository": "acme/shop",
        "pull_request": PULL_REQUEST,
        "author": "ci-links",
    }
    assert [linked] == runner.links()
    after = {
        "CI_COMMIT_SHA": COMMIT,
        "CI_PROJECT_PATH": "acme/shop",
        "CI_COMMIT_TIMESTAMP": "2100-01-01T10:00:00+00:00",
    }
    run("link-commit", CI_COMMIT_MESSAGE="Raise the toll", **after)
    assert [linked] == runner.links()
    message = "Merge branch 'fix-totals' into 'main'\n\nFix the totals\n\nSee merge request acme/shop!42"
    run("link-commit", CI_COMMIT_MESSAGE=message, **after)
    commit = {"commit": COMMIT, "pull_request": PULL_REQUEST, "author": "ci-links"}
    assert [{**linked, "until": "2100-01-01"}, commit] == runner.links()
    wait_until(lambda: runner.calls() == {PULL_REQUEST: 2}, "both calls")
