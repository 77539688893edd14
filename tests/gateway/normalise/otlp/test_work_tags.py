"""Repository, branch and commit of calls, under the names of each reporter."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.reading.repositories import repository_of
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
    """Neither host nor credentials nor folders of a person are kept."""
    assert repository_of(stated) == repository


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_work_of_a_call_is_stated_under_several_names(encoding: str) -> None:
    """Copilot's and Claude Code's names give the same tags."""
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


def test_a_call_takes_the_work_of_the_agent_above_it() -> None:
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
