"""
Notes in the types of fields: descriptions, examples and options, which interfaces show.

The values of a resource and all its interfaces share the one declaration of each field.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET


@dataclass(frozen=True, slots=True)
class Option:
    """
    The command-line option of a field, if it differs from `--FIELD` with the field's description.

    `is_by_hand`: the command defines the option itself.
    """

    name: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    is_by_hand: bool = False


def words(text: str) -> msgspec.Meta:
    """Return the description of a field, for use as `Annotated[str, words("...")]`."""
    return msgspec.Meta(description=text)


@dataclass(frozen=True, slots=True, eq=False)  # eq=False keeps the hash, which `Annotated` needs
class Example:
    """
    The example of a field in the reference. `changed`: the value in the example of a change. The example of a
    creation contains the field if its value is not the default.
    """

    value: Any
    changed: Any = UNSET


def example(value: Any, *, changed: Any = UNSET) -> Example:
    """Return the example of a field, for use as `Annotated[str, words("..."), example("Ada Park")]`."""
    return Example(value, changed)


def example_id(noun: str) -> str:
    return blake2b(noun.encode(), digest_size=16).hexdigest()
