"""
The compiled module `tollhouse_native`. It is optional: without it, everything works the same but slower.

The module knows no record types. This code gives it the positions of the fields, and the callers of the
module define what the fields mean.
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

# version of the module's interface; a module with another number belongs to another release
INTERFACE: Final = 9
MOST_FAULTS: Final = 3  # number of failures after which the module is off until the next start
MODULE: Final = "tollhouse_native"

_log = logging.getLogger(__name__)

# Kinds of fields, by the module's numbers. EMPTY is any other type. If such a field has a value, Python
# reads the record.
_TEXT, _BYTES, _NUMBER, _FLAG, _TAGS, EMPTY = range(6)
T = TypeVar("T")
FIELDS: Final = Inference.__struct_fields__
_KINDS: Final[Mapping[object, int]] = {str: _TEXT, bytes: _BYTES, int: _NUMBER, bool: _FLAG}
# The only mapping of texts that the module reads. If another mapping has an entry, Python reads the record.
_TEXTS: Final = "tags"


def field_position(field: str) -> int:
    """Return the position of a field in the record of a call."""
    return FIELDS.index(field)


class Walked(NamedTuple):
    """
    Result of `Native.walk`: where each record begins and the last one ends, in 4 bytes each. Also the
    positions of odd records, which Python must decode.
    """

    offsets: bytes
    odd: Sequence[int]


class SpanWriter(Protocol):
    """Protocol of `tollhouse_native.Encoder`."""

    def encode(
        self, packed: bytes, offsets: bytes, begin: int, end: int, at: int
    ) -> tuple[bytes, int, int, int]:
        """
        Encode spans from position `begin` on. Return the encoded spans, their number, the number of skipped
        records that are kept only for reference, and the first position that was not encoded.
        """
        ...

    def learn(self, packed: bytes, offsets: bytes, place: int, encoded: bytes) -> bool:
        """Remember how a record's combination of fields is encoded."""
        ...


class RowAdder(Protocol):
    """Protocol of `tollhouse_native.Sums`."""

    is_full: bool

    def add(
        self, packed: bytes, offsets: bytes, begin: int, end: int, number: int, arrival: tuple[int, int]
    ) -> int:
        """Add records. Return the first position that was not added."""
        ...

    def take(self) -> tuple[Sequence[tuple[int, bytes, list[int]]], Mapping[int, int]]:
        """
        Return rows and the lowest record number of each hour. A row has the number of its hour, the packed
        fields by which it is counted, and its measures.
        """
        ...


class ItemMemory(Protocol):
    """Protocol of `tollhouse_native.Memory`."""

    def scopes(self, body: bytes, most: int) -> tuple[Sequence[bytes], int] | None:
        """
        Return the scope of each group and the number of items. Return None in the same cases as `groups`.
        """
        ...

    def groups(self, body: bytes, most: int) -> list[tuple[int, bytes, bytes, list[Any]]] | None:
        """
        Return each group: the position of its resource, the resource, the scope and the items.

        Returns None if the request has an unusual layout, or more than `most` resources, scopes and items.
        """
        ...

    def find(self, context: int, items: Sequence[bytes], of_context: Sequence[str]) -> list[tuple[Any, ...]]:
        """
        Return for each item its kind, whether to compare it, its counts, the hash of a text or None, trace id,
        span id, parent id, start, end, the texts that vary, and `of_context`. For an unknown item, return only
        the reason.
        """
        ...

    def learn(
        self,
        context: int,
        item: bytes,
        reads: Sequence[bytes] | None,
        number: int | None = None,
    ) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
        """
        Return the texts and counts that vary in an item, or None if the item cannot be learned. `reads` are
        the names that the rules read in items of this shape.

        The kind is stored under `number`. If `reads` is None, the shape is never learned.
        """
        ...

    def name(self, name: bytes, rule: int, slot: int) -> bool:
        """Register a name: how to read it, and which part of it varies."""
        ...

    def context(self, number: int, texts: Sequence[bytes]) -> None:
        """Register a context and its texts."""
        ...

    def ask(self, names: Sequence[bytes]) -> None:
        """Register names that rules look for, in addition to those that the plan declares."""
        ...

    def is_free(self, name: bytes) -> bool:
        """Return True if no reading depends on the name. Such a name is no part of a kind."""
        ...

    def clear(self) -> None: ...

    def size(self) -> tuple[int, int]:
        """Return the number of stored kinds, and their size in bytes."""
        ...

    def sweep(self) -> Sequence[int]:
        """
        Drop the kinds that were not used since the last sweep. Return the numbers of the remaining kinds.
        """
        ...


class NativeFault(Exception):
    """The compiled module failed, so Python must process the input."""


class Native:
    """
    The module, until it is switched off. `panic` is the exception that the module raises for an internal error.
    """

    def __init__(self, module: ModuleType) -> None:
        self.version: str = module.__version__
        self.panic: type[BaseException] = module.Panic
        self.faults = 0
        self._module = module
        self._table = _make_table(module)

    @property
    def is_on(self) -> bool:
        return self.faults < MOST_FAULTS

    def walk(self, packed: bytes, count: int) -> Walked | None:
        """
        Find `count` records. Returns None if the bytes contain anything else, or if the module is off. Python
        then reads the bytes.
        """
        found = self._try_native(self._table.walk, packed, count)
        return None if found is None else Walked(*found)

    def merge(self, one: bytes, other: bytes) -> bytes | None:
        """Merge two sorted runs of ids. Returns None if Python must do it."""
        return self._try_native(self._module.merge, one, other)

    def marks(self, ids: bytes, size: int) -> bytes | None:
        """
        Build marks of `size` bytes, with a bit for the low end of each id. Returns None if Python must do it.
        """
        return self._try_native(self._module.marks, ids, size)

    def _try_native(self, work: Callable[..., T], *given: object) -> T | None:
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
        """Count and log a failure. After MOST_FAULTS failures, the module is off until the next start."""
        self.faults += 1
        words = (
            "it is switched off until the next start"
            if self.faults == MOST_FAULTS
            else "Python continues the work"
        )
        _log.error(
            "the compiled module failed, %s: %s",
            words,
            error,
            extra={"action": "native_failed", "faults": self.faults},
        )


@dataclass(frozen=True, slots=True)
class NativeUse:
    """State of the module for operators: the loaded module, or None and the reason why it is not loaded."""

    native: Native | None = None
    reason: str = "no server runs"
    is_installed: bool = False  # whether the module was looked for and is there, even if it cannot be used

    @property
    def is_on(self) -> bool:
        return self.native is not None and self.native.is_on

    @property
    def version(self) -> str:
        return "" if self.native is None else self.native.version

    @property
    def words(self) -> str:
        """Describe the state of the module for an operator."""
        if self.native is None:
            return f"off: {self.reason}"
        return (
            f"on, {self.version}"
            if self.is_on
            else f"off until the next start, because it failed {MOST_FAULTS} times"
        )


NO_NATIVE: Final = NativeUse()


def load_if_enabled(wanted: bool) -> NativeUse:
    """Load the module if the setting enables it and it is installed."""
    if not wanted:
        return NativeUse(reason="server.native is false")
    try:
        return NativeUse(load(), is_installed=True)
    except ModuleNotFoundError as error:
        return NativeUse(reason=str(error))
    except ImportError as error:
        return NativeUse(reason=str(error), is_installed=True)


def load() -> Native:
    """Load the module. If it cannot be used, raises ImportError with the reason."""
    module = importlib.import_module(MODULE)
    found = getattr(module, "INTERFACE", None)
    if found != INTERFACE:
        raise ImportError(
            f"{MODULE} has interface {found}, but this Tollhouse needs {INTERFACE}. Build it again"
        )
    return Native(module)


def _make_table(module: ModuleType) -> Any:
    """
    Pass the fields of a call to the module. A record may omit fields at its end; the module reads them as None.
    """
    kinds, least = _field_kinds()
    return module.Table(tag=Inference.__struct_config__.tag, fields=list(kinds), least=least)


@cache
def _field_kinds() -> tuple[Sequence[tuple[int, bool]], int]:
    """Return the kinds of the fields of a call, and the number of leading fields that every record has."""
    fields = msgspec.structs.fields(Inference)
    kinds = tuple((_TAGS, False) if field.name == _TEXTS else _value_kind(field.type) for field in fields)
    return kinds, 1 + max(number for number, field in enumerate(fields) if not _may_lack(field))


def _value_kind(type: Any) -> tuple[int, bool]:
    """Return the kind of a field's value, and whether it may be None."""
    if type in _KINDS:
        return _KINDS[type], False
    *kinds, none = getattr(type, "__args__", (type, type))
    if len(kinds) == 1 and none is NoneType:
        return _KINDS.get(kinds[0], EMPTY), True
    return EMPTY, False


def _may_lack(field: msgspec.structs.FieldInfo) -> bool:
    """
    Return True if a record that omits the field equals a record with the default value: None, False or empty.
    """
    return field.default is None or field.default is False or field.default_factory is dict
