"""
Erasure of people: names are replaced by pseudonyms. Pure.

An erasure stores keyed digests of names, and applies only to calls before it. So a late report or a restored
backup does not restore the name, and a later call under the same name belongs to a new person.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from spool.errors import Invalid
from spool.people import (
    END_USER,
    ERASED,
    LATEST,
    STORED_BEFORE,
    USER_EMAIL,
    CallTime,
    ErasedName,
    Pseudonyms,
    is_hash_address_or_pseudonym,
    is_pseudonym,
)
from spool.record import (
    AI_TELEMETRY,
    CONTRACT_MARK,
    NS,
    USAGE_EVENTS,
    Correction,
    Inference,
    RecalculationEntry,
    Record,
    UsageEvent,
    UsageMetric,
)

FORMAT = 1  # version of the file of erasures
MAX_FILE_BYTES = 64 << 20
GATEWAY_BELOW = "gateway "  # prefix of the name under which a gateway below is listed
TOPICS_OF_PEOPLE = (AI_TELEMETRY, USAGE_EVENTS)
_HEX = re.compile(r"[0-9a-f]{32}")
_WORD = re.compile(r"[\w@.:+%'-]+")
_LAST = ".:'-"  # after a name, these characters belong to the sentence
_KEY = re.compile(r"([0-9a-f]{64})?")
# fields that mean nothing in another storage
_OF_THIS_STORAGE = ("passes", "stored", "log", "totals_have_names")

# Returns the pseudonym of a name in a call, or the name itself.
Renaming = Callable[[str, CallTime], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """
    The erasure of one person. `at`: epoch seconds. `names`: pseudonyms by digest. `texts`: names in free
    texts are replaced as well. `devices`: the person's devices are revoked and lose user, hostname and serial
    number. `passes`: how often the records of this storage were renamed. `stored`: the next record number of
    each topic of this storage when its totals were renamed; all earlier records are the erased person's. `log`:
    the incarnation of the log that has these numbers. `totals_have_names`: the totals may have names of calls whose
    records were renamed later, until they are counted again.

    `below`: agents and gateways that have not confirmed the erasure. `key`: hex key of the digests if a
    Tollhouse above ordered the erasure, else "".
    """

    id: str
    at: float
    names: Mapping[str, str]
    texts: bool = False
    devices: bool = False
    passes: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)
    log: str = ""
    totals_have_names: bool = False
    below: Sequence[str] = ()
    key: str = ""


def new_erasure(
    digests: Iterable[str], erased_at: float, *, texts: bool = False, devices: bool = False
) -> Erasure:
    names = {digest: f"erased:{secrets.token_hex(8)}" for digest in sorted({*digests})}
    return Erasure(id=secrets.token_hex(16), at=erased_at, names=names, texts=texts, devices=devices)


def pseudonyms_by_digest(erasures: Iterable[Erasure]) -> Pseudonyms:
    found: dict[str, tuple[ErasedName, ...]] = {}
    keys = dict[bytes, None]()
    for erasure in sorted(erasures, key=lambda each: (each.at, each.id)):
        keys[bytes.fromhex(erasure.key)] = None
        for digest, pseudonym in erasure.names.items():
            erased_name = ErasedName(int(erasure.at * NS), erasure.stored, pseudonym)
            found[digest] = (*found.get(digest, ()), erased_name)
    return Pseudonyms(found, (*keys,))


def unconfirmed_pseudonyms(erasures: Iterable[Erasure]) -> Mapping[str, Pseudonyms]:
    """Return the pseudonyms of the erasures that each agent or gateway below has not confirmed, by its key."""
    unconfirmed: dict[str, list[Erasure]] = {}
    for erasure in erasures:
        for name in erasure.below:
            # several gateways may share a key, so the name of a gateway ends with its installation
            key = name.rpartition(" ")[0] if name.startswith(GATEWAY_BELOW) else name
            unconfirmed.setdefault(key, []).append(erasure)
    return {key: pseudonyms_by_digest(own) for key, own in unconfirmed.items()}


# -- records -------------------------------------------------------------------------------------------------


def time_of_new_call(record: Record, *, arrived_ns: int = LATEST) -> CallTime:
    """Return the time of a call that is not stored yet. A start after the arrival counts as the arrival."""
    return CallTime(arrived_ns if record.start_time is None else min(record.start_time, arrived_ns))


def time_of_stored_call(record: Record, topic: str, number: int) -> CallTime:
    """
    Return the time of a record's call. A correction, and a record that takes back another, is about the call of
    that record.
    """
    stated = getattr(record, "corrects_number", None) or getattr(record, "reverses_number", None)
    return time_of_new_call(record)._replace(topic=topic, number=stated or number)


def rename_person(record: Record, renaming: Renaming, call: CallTime) -> bool:
    """
    Replace erased names in a record, including a contract's name. Changes the record. Return whether it
    changed.

    Sessions and runs keep names, because they identify work. Unit costs and billing files keep names, because
    they are sent as they arrived.
    """
    if isinstance(record, Correction):
        changes = [rename_person(state, renaming, call) for state in (record.before, record.after)]
        return any(changes)
    if not isinstance(record, Inference | UsageMetric | UsageEvent | RecalculationEntry):
        return False
    fields = _renamed_fields(record, lambda name: renaming(name, call))
    for name, value in fields.items():
        setattr(record, name, value)
    return bool(fields)


def states_erased_name(record: Record, renaming: Renaming) -> bool:
    """Return whether a record states a name that was erased, before or after its call."""
    if isinstance(record, Correction):
        return any(states_erased_name(state, renaming) for state in (record.before, record.after))
    if not isinstance(record, Inference | UsageMetric | UsageEvent | RecalculationEntry):
        return False
    return bool(_renamed_fields(record, lambda name: renaming(name, STORED_BEFORE)))


def rename_person_in_fields(fields: dict[str, Any], renaming: Renaming, call: CallTime) -> bool:
    changed = _renamed_fields(fields, lambda name: renaming(name, call))
    fields.update(changed)
    return bool(changed)


def rename_person_in_tags(tags: Mapping[str, str], rename: Callable[[str], str]) -> dict[str, str]:
    """
    Return the tags with erased persons and their addresses replaced. `rename`: returns the new name of a name.
    """
    return {
        name: rename(value) if name in _TAGS_OF_PEOPLE or is_hash_address_or_pseudonym(value) else value
        for name, value in tags.items()
    }


_TAGS_OF_PEOPLE = (USER_EMAIL, END_USER)
_NAMED = ("user", "subject")  # any name of a person
_MAY_NAME = ("team", "api_key")  # may have a person's name, but only an e-mail address counts as one


def _renamed_fields(record: object, rename: Callable[[str], str]) -> dict[str, Any]:
    def read_renamed_field(name: str) -> Any:
        return record.get(name) if isinstance(record, dict) else getattr(record, name, None)

    after: dict[str, Any] = {}
    for name in (*_NAMED, *_MAY_NAME):
        value = read_renamed_field(name)
        if value is not None and (name in _NAMED or is_hash_address_or_pseudonym(value)):
            after[name] = rename(value)
    if tags := read_renamed_field("tags"):
        after["tags"] = rename_person_in_tags(tags, rename)
    if data := read_renamed_field("data"):
        after["data"] = {
            name: rename(value) if isinstance(value, str) else value for name, value in data.items()
        }
    prices, mark, contract = (read_renamed_field("price_book") or "").partition(CONTRACT_MARK)
    if mark:
        after["price_book"] = (
            prices + mark + rename_words(contract, lambda name: erased_word_if_renamed(name, rename))
        )
    return {name: value for name, value in after.items() if value != read_renamed_field(name)}


def erased_word_if_renamed(name: str, rename: Callable[[str], str]) -> str:
    """
    Return ERASED if `rename` changes the name, else the name. In free texts, this word stands for every
    pseudonym.
    """
    return name if rename(name) == name else ERASED


def rename_words(text: str, rename: Callable[[str], str]) -> str:
    """Replace each word of a text that `rename` changes, also if punctuation follows it."""

    def rename_word(match: re.Match[str]) -> str:
        word = match[0]
        for name in dict.fromkeys((word, word.rstrip(_LAST))):
            if name and (new := rename(name)) != name:
                return new + word[len(name) :]
        return word

    return _WORD.sub(rename_word, text)


class RenamedRecords(NamedTuple):
    """
    The number of renamed records, of deliveries with new idempotency keys, of entries that could not be read,
    and of records that keep the name, because it is that of a later person.
    """

    records: int = 0
    deliveries: int = 0
    unreadable: int = 0
    later: int = 0

    def plus(self, other: RenamedRecords) -> RenamedRecords:
        return RenamedRecords(*map(sum, zip(self, other, strict=True)))


NO_RECORDS = RenamedRecords()


class RenameRecords(Protocol):
    """Rename people in all records. With `is_trial`, records are only counted, and nothing changes."""

    async def __call__(self, renaming: Renaming, *, is_trial: bool = False) -> RenamedRecords: ...


# -- a file, for the restore of a backup
# -------------------------------------------------------------------------


def erasures_to_json(erasures: Iterable[Erasure]) -> dict[str, Any]:
    """Return the digests and pseudonyms of the erasures, without names."""
    return {"format": FORMAT, "erasures": [_erasure_to_json(erasure) for erasure in erasures]}


def _erasure_to_json(erasure: Erasure) -> dict[str, Any]:
    return {name: value for name, value in asdict(erasure).items() if name not in _OF_THIS_STORAGE}


def read_erasures(text: bytes) -> list[Erasure]:
    """Decode the result of `erasures_to_json`. Raises Invalid for any other text."""
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


def erasure_order_for_lower_installations(erasure: Erasure, digest_key: bytes) -> Erasure:
    """
    Return the erasure as an order for agents and gateways of lower levels. `digest_key`: the key of this
    installation's digests.
    """
    return replace(erasure, below=(), key=erasure.key or digest_key.hex())


def _is_valid_erasure(erasure: Erasure) -> bool:
    return (
        _HEX.fullmatch(erasure.id) is not None
        and isinstance(erasure.at, int | float)
        and 0 <= erasure.at < 1e12
        and not (erasure.passes or erasure.stored or erasure.log or erasure.totals_have_names)
        and {type(erasure.texts), type(erasure.devices)} == {bool}
        and all(isinstance(name, str) for name in erasure.below)
        and _KEY.fullmatch(erasure.key) is not None
        and all(_HEX.fullmatch(digest) and is_pseudonym(name) for digest, name in erasure.names.items())
    )
