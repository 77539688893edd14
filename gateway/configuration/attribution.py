"""The settings of sources, and the rules that attribute their records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spool.settings import setting

_LANE_FIELD = re.compile("session|run|tag:.+")


@dataclass(frozen=True, kw_only=True)
class Match:
    """A condition of a rule. Every field that is set must match; a trailing `*` matches any ending."""

    api_key: str = setting("", "key as the source names it")
    user: str = setting("", "the user")
    device: str = setting("", "the device")
    model: str = setting("", "the model")
    tag: Mapping[str, str] = setting({}, "name of a tag = its value")


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Values for the null fields of matching records."""

    team: str = setting("", "the team")
    user: str = setting("", "the user")
    tags: Mapping[str, str] = setting({}, "name of a tag = its value")


@dataclass(frozen=True, kw_only=True)
class AttributionRule:
    """A rule that assigns calls to owners. Rules apply in their order."""

    match: Match = setting(Match(), "which calls")
    set: Assignment = setting(Assignment(), "values for fields that are null")

    def problems(self, setting_path: str) -> Iterator[str]:
        if self.match == Match():
            yield f"{setting_path}.match needs api_key, user, device, model or tag"
        if self.set == Assignment():
            yield f"{setting_path}.set needs team, user or tags"


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """A source of records by its name, such as `claude_code` or `litellm`."""

    count: bool = setting(
        True,
        "whether records of the source count. false: they are stored and shown, but neither summed "
        "nor forwarded. An explicit true also counts the counters of Cursor and of inference "
        "servers, which otherwise only repeat calls",
    )
    signing_secret_file: Path | None = setting(
        None,
        "file with Helicone's signing secret; webhooks without its signature are refused; only for helicone",
    )

    lane: tuple[str, ...] = setting(
        (), "fields that the calls of one conversation share; empty: those of the product, if they are known"
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        if self.lane and not ("session" in self.lane and all(map(_LANE_FIELD.fullmatch, self.lane))):
            yield f"{setting_path}.lane needs session, and may have run and tag:NAME, because it is a part of a session"
        if self.signing_secret_file and setting_path != "sources.helicone":
            yield (
                f"{setting_path}.signing_secret_file is only for helicone, because other sources do not sign; remove it"
            )
