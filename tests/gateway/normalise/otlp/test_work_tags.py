"""Repository, branch and commit of calls, under the names of each reporter."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.normalise.reading.repositories import repository_in_attributes, unify_work_tags
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, span, traces

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.usage.input_tokens": 9}


@pytest.mark.parametrize(
    ("stated", "repository"),
    [
        ({"vcs.repository.url.full": "https://github.com/acme/shop"}, "acme/shop"),
        ({"vcs.repository.url.full": "https://ada:secret@github.com/acme/shop.git"}, "acme/shop"),
        ({"vcs.repository.url.full": "https://github.com/acme/shop.git?token=secret#x"}, "acme/shop"),
        ({"github.copilot.git.repository": "git@github.com:acme/shop.git"}, "acme/shop"),
        ({"github.copilot.git.repository": "ssh://git@example.com:7999/acme/shop.git/"}, "acme/shop"),
        ({"copilot_chat.repo.remote_url": "https://gitlab.com/acme/web/shop"}, "acme/web/shop"),
        ({"github.copilot.git.repository": "acme/shop"}, "acme/shop"),
        ({"vcs.repository.name": "shop", "vcs.owner.name": "acme"}, "acme/shop"),
        ({"vcs.repository.name": "acme/shop", "vcs.owner.name": "acme"}, "acme/shop"),
        ({"vcs.repository.name": "shop"}, "shop"),
        ({"vcs.owner.name": "acme"}, None),
        ({"vcs.repository.url.full": "/home/ada/work/shop"}, "shop"),
        ({"vcs.repository.url.full": "file:///home/ada/work/shop.git"}, "shop"),
        ({"vcs.repository.url.full": "C:\\Users\\ada\\shop"}, "shop"),
        ({"vcs.repository.url.full": "C:/Users/ada/shop"}, "shop"),
        ({"vcs.repository.url.full": "ada:secret@github.com"}, None),
        ({"vcs.repository.url.full": "https://"}, None),
        ({"vcs.repository.url.full": "", "vcs.repository.name": "shop"}, "shop"),
        ({"vcs.repository.url.full": 7}, "7"),
        ({}, None),
    ],
)
def test_all_forms_of_a_repository_are_one_name(stated: dict[str, Any], repository: str | None) -> None:
    """
    The name of a repository in a tag contains neither host nor credentials nor folders of a person, in whatever
    form a sender states it.
    """
    assert repository_in_attributes(stated) == repository


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_work_of_a_call_is_stated_under_several_names(encoding: str) -> None:
    """Repository, branch and commit under the names of Copilot and of Claude Code give the same tags."""
    expected = {"repository": "acme/shop", "branch": "main", "commit": "a" * 40}
    for names in (
        ("vcs.repository.url.full", "vcs.ref.head.name", "vcs.ref.head.revision"),
        ("github.copilot.git.repository", "github.copilot.git.branch", "github.copilot.git.commit_sha"),
        (
            "copilot_chat.repo.remote_url",
            "copilot_chat.repo.head_branch_name",
            "copilot_chat.repo.head_commit_hash",
        ),
    ):
        stated = dict(zip(names, ("https://github.com/acme/shop.git", "main", "a" * 40), strict=True))
        assert only(traces(span(1, {**CHAT, **stated})), encoding=encoding).tags == expected
        assert only(traces(span(1, CHAT), resource=stated), encoding=encoding).tags == expected


def test_call_inherits_work_tags_from_the_nearest_span_above() -> None:
    """The nearest span above counts for each tag. The call's own tags come first."""
    outer = span(
        1,
        {"gen_ai.operation.name": "invoke_agent", "vcs.repository.name": "old", "vcs.ref.head.name": "main"},
    )
    inner = span(
        2, {"gen_ai.operation.name": "invoke_agent", "github.copilot.git.repository": "acme/shop"}, parent=1
    )
    first = span(3, CHAT, parent=2)
    second = span(4, {**CHAT, "github.copilot.git.branch": "fix"}, parent=2)
    outcome = normalised(traces(first, second, inner, outer))
    assert [record.tags for record in outcome.records] == [
        {"repository": "acme/shop", "branch": "main"},
        {"repository": "acme/shop", "branch": "fix"},
    ]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"pull_request": "42", "repository": "acme/shop"}, "acme/shop#42"),
        ({"pull_request": "#42", "repository": "git@github.com:acme/shop.git"}, "acme/shop#42"),
        ({"pull_request": "!42", "repository": "acme/web/shop"}, "acme/web/shop#42"),
        ({"pull_request": "refs/pull/42/merge", "repository": "acme/shop"}, "acme/shop#42"),
        ({"pull_request": "42"}, "42"),
        ({"pull_request": "acme/shop#42", "repository": "ada/shop"}, "acme/shop#42"),
        ({"pull_request": "https://github.com/acme/shop/pull/42/files?w=1"}, "acme/shop#42"),
        ({"pull_request": "https://ada:secret@example.com/acme/shop/-/merge_requests/42"}, "acme/shop#42"),
        ({"pull_request": "https://bitbucket.org/acme/shop/pull-requests/42"}, "acme/shop#42"),
        (
            {"pull_request": "https://dev.azure.com/acme/web/_git/shop/pullrequest/42"},
            "acme/web/_git/shop#42",
        ),
        ({"pull_request": "acme/web/shop!42"}, "acme/web/shop#42"),
        ({"pull_request": "I6c3a9f"}, "I6c3a9f"),
        ({"pull_request": "42", "repository": "ada:secret@github.com"}, "42"),
    ],
)
def test_all_forms_of_a_pull_request_are_one_name(stated: dict[str, str], expected: str) -> None:
    """A pull request is stored with its repository, because its number is unique only within the repository."""
    assert expected == unify_work_tags(stated)["pull_request"]


def test_a_call_states_its_pull_request_under_its_repository() -> None:
    """
    A call gets its pull request with the repository, even if the resource states the repository and the call states
    the pull request.
    """
    record = only(
        traces(
            span(1, {**CHAT, "vcs.change.id": "42", "ticket": "SHOP-7"}),
            resource={"vcs.repository.name": "acme/shop", "vcs.ref.head.name": "refs/heads/main"},
        )
    )
    RecordAttributor(Config()).attribute_record(record, {"branch": "other"})
    expected = {
        "repository": "acme/shop",
        "pull_request": "acme/shop#42",
        "branch": "main",
        "ticket": "SHOP-7",
    }
    assert record.tags == expected
