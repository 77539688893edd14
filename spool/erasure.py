"""
Erasure of people: from the names of an erased person to the pseudonyms that stored data have instead. Pure.

An erasure has keyed digests of names, never a name. It applies to calls that began before it. So a later call under
the same name belongs to a new person, and a late report or a restored backup does not bring an erased name back.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from spool.errors import Invalid
from spool.people import LATEST, USER_EMAIL, Pseudonyms, is_pseudonym, may_be_second
from spool.record import NS, Correction, Inference, Record, UsageEvent, UsageMetric

FORMAT = 1  # of a file with erasures
MAX_FILE_BYTES = 64 << 20
# Times of a call that states none: among stored records it is before an erasure, and on arrival after all of them.
EVER, NEVER = 0, LATEST
_HEX = re.compile(r"[0-9a-f]{32}")
_KEY = re.compile(r"([0-9a-f]{64})?")

# Returns the pseudonym of a name in a call that began at a time in nanoseconds, or the name itself.
Renaming = Callable[[str, int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """
    One erased person. `names` has a pseudonym for each name, by the digest of the name. `texts`: names in free texts
    are replaced. `devices`: the devices of the person are revoked, without user, hostname and serial number. `passes`
    counts how often the records of this storage were renamed.

    `below` are the agents and gateways below that have not confirmed. `key` is the key of the digests in hex digits
    if a Tollhouse above ordered the erasure, otherwise "".
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
    """Return the pseudonyms of each digest, oldest erasure first, each with the end of its calls in nanoseconds."""
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
    Replace the names of erased people in a record, in place. Return whether it changed.

    `unknown` is the time of a call that states none. Names stay in sessions and runs, because these identify work,
    and in unit costs and billing files, which are sent as they arrived.
    """
    if isinstance(record, Correction):
        changes = [rename_person(call, renaming, unknown=unknown) for call in (record.before, record.after)]
        return any(changes)
    if not isinstance(record, Inference | UsageMetric | UsageEvent):
        return False
    at = record.start_time if record.start_time is not None else unknown
    fields = _rename_fields(record, lambda name: renaming(name, at))
    for name, value in fields.items():
        setattr(record, name, value)
    return bool(fields)


def rename_fields(fields: dict[str, Any], renaming: Renaming, at: int) -> bool:
    """Replace names in the fields that a later report added to a record, as `rename_person` does."""
    changed = _rename_fields(fields, lambda name: renaming(name, at))
    fields.update(changed)
    return bool(changed)


def rename_tags(tags: Mapping[str, str], renamed: Callable[[str], str]) -> dict[str, str]:
    """Return tags in which the person's address, and every other address, is renamed."""
    return {
        name: renamed(value) if name == USER_EMAIL or may_be_second(value) else value
        for name, value in tags.items()
    }


_NAMED = ("user", "subject")  # fields that have any name of a person
_MAY_NAME = ("team", "api_key")  # fields that name a person only by an address


def _rename_fields(record: object, renamed: Callable[[str], str]) -> dict[str, Any]:
    """Return the fields that change."""

    def read(name: str) -> Any:
        return record.get(name) if isinstance(record, dict) else getattr(record, name, None)

    after: dict[str, Any] = {}
    for name in (*_NAMED, *_MAY_NAME):
        value = read(name)
        if value is not None and (name in _NAMED or may_be_second(value)):
            after[name] = renamed(value)
    if tags := read("tags"):
        after["tags"] = rename_tags(tags, renamed)
    return {name: value for name, value in after.items() if value != read(name)}


class RenamedRecords(NamedTuple):
    """Number of changed records, of deliveries that got a new key, and of entries that cannot be read."""

    records: int = 0
    deliveries: int = 0
    unreadable: int = 0

    def plus(self, other: RenamedRecords) -> RenamedRecords:
        return RenamedRecords(*map(sum, zip(self, other, strict=True)))


NO_RECORDS = RenamedRecords()


# -- a file with erasures, for the restore of a backup ---------------------------------------------------------


def erasures_to_json(erasures: Iterable[Erasure]) -> dict[str, Any]:
    """Return erasures as the JSON of a file. It has digests and pseudonyms, and no name."""
    return {"format": FORMAT, "erasures": [asdict(replace(erasure, passes=0)) for erasure in erasures]}


def read(text: bytes) -> list[Erasure]:
    """Read the file of `written`. Raises Invalid."""
    if len(text) > MAX_FILE_BYTES:
        raise Invalid(f"the file of erasures has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        contents = json.loads(text)
        erasures = [erasure_from_json(**erasure) for erasure in contents["erasures"]]
        is_known = contents["format"] == FORMAT and all(map(_is_sound, erasures))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("this is not a file of `tollhouse people erasures`") from error
    if not is_known:
        raise Invalid("this file of erasures is damaged or has an unknown format")
    return erasures


def erasure_from_json(*, below: Sequence[str], **fields: Any) -> Erasure:
    """Return an erasure from its fields in JSON."""
    return Erasure(below=tuple(below), **fields)


def order_for_below(erasure: Erasure, key: bytes) -> Erasure:
    """Return an erasure as an order for agents and gateways below. `key` is the key of this installation."""
    return replace(erasure, below=(), key=erasure.key or key.hex())


def _is_sound(erasure: Erasure) -> bool:
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
