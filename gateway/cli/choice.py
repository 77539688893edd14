"""An option with a fixed set of words: a wrong one gets the nearest right one."""

from __future__ import annotations

import difflib
from typing import Any

import click


class Choice(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        near = difflib.get_close_matches(str(value), self.choices, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(self.choices)
        return f"{value!r} is not known; {hint}"
