"""
Erasure of people: from names to pseudonyms. Pure.

An erasure has keyed digests of names, and applies to earlier calls. So a later call under the name is a new
person's, and a late report or a restored backup does not bring the name back.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from spool.errors import Invalid
from spool.people import ERASED, LATEST, USER_EMAIL, Pseudonyms, can_be_second_name, is_pseudonym
from spool.record import CONTRACT_MARK, NS, Correction, Inference, Record, UsageEvent, UsageMetric

FORMAT = 1  # version of the file of erasures
MAX_FILE_BYTES = 64 << 20
# Times of calls that state none: of stored calls before an erasure, of arriving calls after all erasures.
EVER, NEVER = 0, LATEST
_HEX = re.compile(r"[0-9a-f]{32}")
_WORD = re.compile(r"[\w@.:+%'-]+")
_LAST = ".:'-"  # after a name, these characters belong to the sentence
_KEY = re.compile(r"([0-9a-f]{64})?")

# Returns the pseudonym of a name in a call that began at a time in nanoseconds, or the name itself.
Renaming = Callable[[str, int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """
    `names`: pseudonyms by digest. `texts`: names in free texts are replaced. `devices`: the person's devices,
    which are revoked and lose user, hostname and serial number. `passes`: how often this storage was renamed.

    `below`: agents and gateways that have not confirmed the erasure. `key`: hex key of the digests of a
    Tollhouse above, or "".
    """

    id: str
    at: float
    names: Mapping[str, str]
    texts: bool = False
    devices: bool = False
    passes: int = 0
    below: Sequence[str] = ()
    key: str = ""


def new_erasure(digests: Iterable[str], at: float, *, texts: bool = False, devices: bool = False) -> Erasure:
    names = {digest: f"erased:{secrets.token_hex(8)}" for digest in sorted({*digests})}
    return Erasure(id=secrets.token_hex(16), at=at, names=names, texts=texts, devices=devices)


def pseudonyms_by_digest(erasures: Iterable[Erasure]) -> Pseudonyms:
    """
    Return the pseudonyms of the erasures, the oldest first, with the time in nanoseconds before which a call
    must have begun.
    """
    found: dict[str, tuple[tuple[int, str], ...]] = {}
    keys = dict[bytes, None]()
    for erasure in sorted(erasures, key=lambda each: (each.at, each.id)):
        keys[bytes.fromhex(erasure.key)] = None
        for digest, pseudonym in erasure.names.items():
            found[digest] = (*found.get(digest, ()), (int(erasure.at * NS), pseudonym))
    return Pseudonyms(found, (*keys,))


# -- records -------------------------------------------------------------------------------------------------


def rename_person(record: Record, renaming: Renaming, *, unknown: int) -> bool:
    """
    Rename in place, also in the name of a contract. Return whether the record changed.

    `unknown` is the time of a call without one. Names stay in sessions and runs, which identify work, and in
    unit costs and billing files, which are sent as they arrived.
    """
    if isinstance(record, Correction):
        changes = [rename_person(call, renaming, unknown=unknown) for call in (record.before, record.after)]
        return any(changes)
    if not isinstance(record, Inference | UsageMetric | UsageEvent):
        return False
    at = record.start_time if record.start_time is not None else unknown
    fields = _renamed_fields(record, lambda name: renaming(name, at))
    for name, value in fields.items():
        setattr(record, name, value)
    return bool(fields)


def rename_person_in_fields(fields: dict[str, Any], renaming: Renaming, at: int) -> bool:
    changed = _renamed_fields(fields, lambda name: renaming(name, at))
    fields.update(changed)
    return bool(changed)


def rename_person_in_tags(tags: Mapping[str, str], renamed: Callable[[str], str]) -> dict[str, str]:
    """Return the tags, with addresses of erased persons replaced."""
    return {
        name: renamed(value) if name == USER_EMAIL or can_be_second_name(value) else value
        for name, value in tags.items()
    }


_NAMED = ("user", "subject")  # any name of a person
_MAY_NAME = ("team", "api_key")  # only addresses


def _renamed_fields(record: object, renamed: Callable[[str], str]) -> dict[str, Any]:
    def read_field(name: str) -> Any:
        return record.get(name) if isinstance(record, dict) else getattr(record, name, None)

    after: dict[str, Any] = {}
    for name in (*_NAMED, *_MAY_NAME):
        value = read_field(name)
        if value is not None and (name in _NAMED or can_be_second_name(value)):
            after[name] = renamed(value)
    if tags := read_field("tags"):
        after["tags"] = rename_person_in_tags(tags, renamed)
    prices, mark, contract = (read_field("price_book") or "").partition(CONTRACT_MARK)
    if mark:
        after["price_book"] = prices + mark + rename_words(contract, lambda name: erased_name(name, renamed))
    return {name: value for name, value in after.items() if value != read_field(name)}


def erased_name(name: str, renamed: Callable[[str], str]) -> str:
    """
    Return ERASED for a name that `renamed` changes. Free texts contain this word instead of a pseudonym.
    """
    return name if renamed(name) == name else ERASED


def rename_words(text: str, renamed: Callable[[str], str]) -> str:
    """Return a text in which each word that is a name is renamed, also before the end of a sentence."""

    def rename_word(match: re.Match[str]) -> str:
        word = match[0]
        for name in dict.fromkeys((word, word.rstrip(_LAST))):
            if name and (new := renamed(name)) != name:
                return new + word[len(name) :]
        return word

    return _WORD.sub(rename_word, text)


class RenamedRecords(NamedTuple):
    """The renamed records, the deliveries that got a new key, and the entries that could not be read."""

    records: int = 0
    deliveries: int = 0
    unreadable: int = 0

    def plus(self, other: RenamedRecords) -> RenamedRecords:
        return RenamedRecords(*map(sum, zip(self, other, strict=True)))


NO_RECORDS = RenamedRecords()


# -- a file, for the restore of a backup
# -------------------------------------------------------------------------


def erasures_to_json(erasures: Iterable[Erasure]) -> dict[str, Any]:
    """Return the digests and pseudonyms of the erasures, without names."""
    return {"format": FORMAT, "erasures": [asdict(replace(erasure, passes=0)) for erasure in erasures]}


def read_erasures(text: bytes) -> list[Erasure]:
    """Raises Invalid for a file that is not from `erasures_to_json`."""
    if len(text) > MAX_FILE_BYTES:
        raise Invalid(f"the file of erasures has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        contents = json.loads(text)
        erasures = [erasure_from_json(**erasure) for erasure in contents["erasures"]]
        is_known = contents["format"] == FORMAT and all(map(_is_valid_erasure, erasures))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("this is not a file of `tollhouse people erasures`") from error
    if not is_known:
        raise Invalid("this file of erasures is damaged or has an unknown format")
    return erasures


def erasure_from_json(*, below: Sequence[str], **fields: Any) -> Erasure:
    return Erasure(below=tuple(below), **fields)


def order_for_lower_levels(erasure: Erasure, key: bytes) -> Erasure:
    """
    Return the erasure as an order for agents and gateways of lower levels. `key` is this installation's.
    """
    return replace(erasure, below=(), key=erasure.key or key.hex())


def _is_valid_erasure(erasure: Erasure) -> bool:
    return (
        _HEX.fullmatch(erasure.id) is not None
        and isinstance(erasure.at, int | float)
        and 0 <= erasure.at < 1e12
        and erasure.passes == 0
        and {type(erasure.texts), type(erasure.devices)} == {bool}
        and all(isinstance(name, str) for name in erasure.below)
        and _KEY.fullmatch(erasure.key) is not None
        and all(_HEX.fullmatch(digest) and is_pseudonym(name) for digest, name in erasure.names.items())
    )
