"""
The compiled module `tollhouse_native`, as far as it can be used: without it everything works the same, slower.

It knows no record: which field is where is handed over here, and what becomes of it by who reads.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType, NoneType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from spool.record import Inference

INTERFACE: Final = 4  # of the module: another number is another release's
MOST_FAULTS: Final = 3  # then the module is not used until the next start
MODULE: Final = "tollhouse_native"

_log = logging.getLogger(__name__)

# Kinds of fields, by the numbers of the module. The last is of another type: what has anything there is not plain, and
# Python's.
_TEXT, _BYTES, _NUMBER, _FLAG, _TAGS, EMPTY = range(6)
T = TypeVar("T")
FIELDS: Final = Inference.__struct_fields__
_KINDS: Final[Mapping[object, int]] = {str: _TEXT, bytes: _BYTES, int: _NUMBER, bool: _FLAG}
# The one field of texts by name that the module reads; a record with something in another is Python's.
_TEXTS: Final = "tags"


def place(field: str) -> int:
    """The place of a field in the record of a call."""
    return FIELDS.index(field)


class Walked(NamedTuple):
    """Where each record begins and the last one ends, 4 bytes each, and the places of those that are odd."""

    offsets: bytes
    odd: Sequence[int]


class SpanWriter(Protocol):
    """`tollhouse_native.Encoder`."""

    def encode(
        self, packed: bytes, offsets: bytes, begin: int, end: int, at: int
    ) -> tuple[bytes, int, int, int]:
        """Encoded spans, how many, the shadows between them, and the first place that was not done."""
        ...

    def learn(self, packed: bytes, offsets: bytes, place: int, encoded: bytes) -> bool:
        """Remember what the combination of a record is encoded as."""
        ...


class RowAdder(Protocol):
    """`tollhouse_native.Sums`."""

    is_full: bool

    def add(
        self, packed: bytes, offsets: bytes, begin: int, end: int, number: int, arrival: tuple[int, int]
    ) -> int:
        """Add records; returns the first place that was not added."""
        ...

    def take(self) -> tuple[Sequence[tuple[int, bytes, Sequence[int]]], Mapping[int, int]]:
        """Rows (number of the hour, one record, measures), and the lowest number in each hour."""
        ...


class ItemMemory(Protocol):
    """`tollhouse_native.Memory`."""

    def scopes(self, body: bytes, most: int) -> tuple[Sequence[bytes], int] | None:
        """The scope of each group, and how many items there are; None as for `groups`."""
        ...

    def groups(self, body: bytes, most: int) -> list[tuple[int, bytes, bytes, list[Any]]] | None:
        """
        The place of its resource, the resource, the scope and the items of each group. None for a request that is not
        laid out in the usual way, or has more resources, scopes and items.
        """
        ...

    def find(self, context: int, items: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """
        Return of each item its kind, whether it is to be compared, its counts, trace, span and parent id, start, end,
        and the texts that vary; the reason alone if it is not known.
        """
        ...

    def learn(
        self, context: int, item: bytes, reads: Sequence[bytes] | None, number: int | None = None
    ) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
        """
        Texts and counts that vary in an item of whose shape these names are read; None if it is not to be learned.

        The kind is remembered under a number; without names the shape is never learned.
        """
        ...

    def name(self, name: bytes, rule: int, slot: int) -> bool:
        """Take a name, how it is read, and what of it varies."""
        ...

    def context(self, number: int, texts: Sequence[bytes]) -> None:
        """Take a context and the texts in it."""
        ...

    def clear(self) -> None: ...

    def size(self) -> tuple[int, int]:
        """Kinds, and bytes of all that is kept."""
        ...

    def sweep(self) -> Sequence[int]:
        """Drop the kinds that nobody asked for since the last sweep; the numbers of those that stay."""
        ...


class NativeFault(Exception):
    """The compiled module gave up: what it was given is to be done by Python."""


class Native:
    """The module, while it works. `panic` is what it raises when it finds itself at fault."""

    def __init__(self, module: ModuleType) -> None:
        self.version: str = module.__version__
        self.panic: type[BaseException] = module.Panic
        self.faults = 0
        self._module = module
        self._table = _table(module)

    @property
    def is_on(self) -> bool:
        return self.faults < MOST_FAULTS

    def walk(self, packed: bytes, count: int) -> Walked | None:
        """
        Find so many records. None if the bytes are not just these, or while the module is off: Python
        looks at them then.
        """
        found = self._tried(self._table.walk, packed, count)
        return None if found is None else Walked(*found)

    def merge(self, one: bytes, other: bytes) -> bytes | None:
        """Join two sorted runs of ids to one; None if Python is to do it."""
        return self._tried(self._module.merge, one, other)

    def marks(self, ids: bytes, size: int) -> bytes | None:
        """Set a bit for the low end of each id of a run, in so many bytes; None if Python is to do it."""
        return self._tried(self._module.marks, ids, size)

    def _tried(self, work: Callable[..., T], *given: object) -> T | None:
        if not self.is_on:
            return None
        try:
            return work(*given)
        except self.panic as error:
            self.fail(error)
            return None

    def span_writer(self, **layout: Any) -> SpanWriter:
        writer: SpanWriter = self._module.Encoder(self._table, layout)
        return writer

    def row_adder(self, **plan: Any) -> RowAdder:
        adder: RowAdder = self._module.Sums(self._table, plan)
        return adder

    def item_memory(self, **plan: Any) -> ItemMemory:
        memory: ItemMemory = self._module.Memory(**plan)
        return memory

    def fail(self, error: BaseException) -> None:
        """The module gave up on its input, which Python does then; the third time it is switched off."""
        self.faults += 1
        words = "it is not used until the next start" if self.faults == MOST_FAULTS else "Python goes on"
        _log.error(
            "the compiled module failed, %s: %s",
            words,
            error,
            extra={"action": "native_failed", "faults": self.faults},
        )


@dataclass(frozen=True, slots=True)
class NativeUse:
    """Whether the module is used: None, and why it is not."""

    native: Native | None = None
    reason: str = "no server runs"

    @property
    def is_on(self) -> bool:
        return self.native is not None and self.native.is_on

    @property
    def version(self) -> str:
        return "" if self.native is None else self.native.version

    @property
    def words(self) -> str:
        """For an operator."""
        if self.native is None:
            return f"off: {self.reason}"
        return (
            f"on, {self.version}"
            if self.is_on
            else f"off until the next start: it failed {MOST_FAULTS} times"
        )


NO_NATIVE: Final = NativeUse()


def use(wanted: bool) -> NativeUse:
    """Load the module, if it is wanted and there."""
    if not wanted:
        return NativeUse(reason="server.native is false")
    try:
        return NativeUse(load())
    except ImportError as error:
        return NativeUse(reason=str(error))


def load() -> Native:
    """ImportError, with the reason, if the module cannot be used."""
    module = importlib.import_module(MODULE)
    found = getattr(module, "INTERFACE", None)
    if found != INTERFACE:
        raise ImportError(f"{MODULE} has interface {found}, this Tollhouse needs {INTERFACE}: build it again")
    return Native(module)


def _table(module: ModuleType) -> Any:
    """The fields of a call as the module knows them; those that may be left out at the end are None then."""
    kinds, least = _fields()
    return module.Table(tag=Inference.__struct_config__.tag, fields=list(kinds), least=least)


@cache
def _fields() -> tuple[Sequence[tuple[int, bool]], int]:
    """The kinds of the fields of a call, and how many of them no call leaves out."""
    fields = msgspec.structs.fields(Inference)
    kinds = tuple((_TAGS, False) if field.name == _TEXTS else _kind(field.type) for field in fields)
    return kinds, 1 + max(number for number, field in enumerate(fields) if not _may_lack(field))


def _kind(type: Any) -> tuple[int, bool]:
    """The kind of value that a field holds; True beside it if it may be None."""
    if type in _KINDS:
        return _KINDS[type], False
    *kinds, none = getattr(type, "__args__", (type, type))
    if len(kinds) == 1 and none is NoneType:
        return _KINDS.get(kinds[0], EMPTY), True
    return EMPTY, False


def _may_lack(field: msgspec.structs.FieldInfo) -> bool:
    """True if a record without the field is the same as one with its default: None, False or empty."""
    return field.default is None or field.default is False or field.default_factory is dict
