"""One line of a diagnosis: what was looked at, and whether it is as it should be."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """`status` is OK, NOTE (a fact to know), WARNING (works, with a risk) or PROBLEM (does not work)."""

    about: str
    status: str
    words: str
