"""Types of options and arguments that several commands share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from gateway.cli import exit_with_message

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_AGE_S: Final = 50 * 365 * 86400.0


class Choice(click.Choice[str]):
    """One of a fixed set of words. The error for an unknown word suggests the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        near = difflib.get_close_matches(str(value), self.choices, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(self.choices)
        return f"{value!r} is not known; {hint}"


class Seconds(click.ParamType[float]):
    """A duration such as 30s, 15m, 24h or 7d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value).strip())
        if match is None:
            self.fail("write a duration as a number and s, m, h or d, such as 24h", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class Percent(click.ParamType[float]):
    """A percentage above 0% and up to 100%, such as 5%."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)%", str(value).strip())
        share = 0.0 if match is None else float(match[1]) / 100
        if not 0 < share <= 1:
            self.fail("write a percentage above 0% and up to 100%, such as 5%", param, ctx)
        return share


class Moment(click.ParamType[str]):
    """A time (RFC 3339, in UTC unless it has a zone), or an age such as 2h."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            age_s = min(Seconds().convert(value, param, ctx), _LONGEST_AGE_S)
            at = datetime.now(UTC) - timedelta(seconds=age_s)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


class Label(click.ParamType[tuple[str, str]]):
    """The parameter type for a label, NAME=VALUE."""

    name = "label"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, equals, text = str(value).partition("=")
        if not equals:
            self.fail("write a label as NAME=VALUE, such as team=search", param, ctx)
        return name, text


def parse_conditions(terms: Iterable[str]) -> Iterator[tuple[str, bool, str | None]]:
    """
    Split each --where into its name, whether it excludes (NAME!=VALUE), and its value. No value means unknown
    and gives None.
    """
    for term in terms:
        name, equals, value = term.partition("=")
        if not equals:
            exit_with_message(
                f"--where {term} is not a filter: write NAME=VALUE or NAME!=VALUE, such as team=search", 2
            )
        yield name.removesuffix("!"), name.endswith("!"), value or None
