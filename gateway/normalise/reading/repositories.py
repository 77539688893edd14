"""
Names of repositories, branches and pull requests. Senders write them in several forms, and Tollhouse stores
one form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.normalise.reading.values import text_or_none
from spool.caches import cache_by_text

URL_NAMES: Final = (
    "vcs.repository.url.full",
    "github.copilot.git.repository",
    "copilot_chat.repo.remote_url",
)
NAME: Final = "vcs.repository.name"
OWNER: Final = "vcs.owner.name"

# Matches the part before the path in `https://user:secret@host/owner/name.git` and `git@host:owner/name`
_REMOTE = re.compile(r"(?:[a-z][a-z0-9+.-]*://[^/]*/+|[^/@:]+@[^/:]+:/*)", re.IGNORECASE)
# Matches a path on the machine, whose folders may name a person.
_LOCAL = re.compile(r"file:|[/\\~.]|[a-z]:[/\\]", re.IGNORECASE)
# Matches addresses of pull requests at GitHub, GitLab, Bitbucket and Azure DevOps
_PAGE = re.compile(
    r"https?://[^/]+/(?P<path>[^?#@:]+?)/(?:-/)?(?:pull|merge_requests|pull-requests|pullrequest)/(?P<number>\d+)(?:[/?#].*)?"
)
_OF_GITLAB = re.compile(r"([^\s#!]+)!(\d+)")
_NUMBER = re.compile(r"(?:refs/(?:pull|merge-requests)/)?[#!]?(?P<number>\d+)(?:/\w+)?")
_REPOSITORY, _PULL_REQUEST, _BRANCH = "repository", "pull_request", "branch"
_HEADS = "refs/heads/"
NAMED: Final = frozenset((_REPOSITORY, _PULL_REQUEST, _BRANCH))  # tags that `unify_work_tags` may change


def repository_in_attributes(attributes: Mapping[str, Any]) -> str | None:
    """
    Return the repository that attributes state, as `owner/name`.

    The host and credentials of an address are left out. A local folder is reduced to its last part.
    """
    for attribute in URL_NAMES:
        stated = text_or_none(attributes.get(attribute))
        if stated is not None and (repository := _repository_path(stated)) is not None:
            return repository
    name, owner = text_or_none(attributes.get(NAME)), text_or_none(attributes.get(OWNER))
    if name is None or owner is None or "/" in name:
        return None if name is None else _repository_path(name)
    return _repository_path(f"{owner}/{name}")


@cache_by_text(1024)
def _repository_path(stated: str) -> str | None:
    path = re.split(r"[?#]", stated, maxsplit=1)[0].rstrip("/\\").removesuffix(".git")
    if _LOCAL.match(path):
        path = re.split(r"[/\\]", path)[-1]
    elif (remote := _REMOTE.match(path)) is not None:
        path = path[remote.end() :]
    # another form may hold credentials, and several words may be content
    is_name = "@" not in path and ":" not in path and len(path.split()) == 1
    return path if is_name else None


def unify_work_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """
    Return tags in which names of work have one form for every sender: `owner/name`, a branch without
    `refs/heads/`, and `owner/name#number`.

    A repository whose text may hold credentials is left out.
    """
    named = dict(tags)
    repository = None if (stated := named.pop(_REPOSITORY, None)) is None else _repository_path(stated)
    if repository is not None:
        named[_REPOSITORY] = repository
    if _BRANCH in named:
        named[_BRANCH] = named[_BRANCH].removeprefix(_HEADS)
    if _PULL_REQUEST in named:
        named[_PULL_REQUEST] = _unified_pull_request(named[_PULL_REQUEST], repository)
    return named


def _unified_pull_request(stated: str, repository: str | None) -> str:
    if (page := _PAGE.fullmatch(stated)) is not None:
        return f"{page['path']}#{page['number']}"
    number = _NUMBER.fullmatch(stated)
    if number is not None and repository is not None:
        return f"{repository}#{number['number']}"
    of_gitlab = _OF_GITLAB.fullmatch(stated)
    return stated if of_gitlab is None else f"{of_gitlab[1]}#{of_gitlab[2]}"
