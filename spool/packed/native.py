"""
The compiled module `tollhouse_native`: optional, for speed.

It knows positions of fields but no record types. Its callers define what the fields mean.
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

# version of the interface; a module with another number belongs to another release
INTERFACE: Final = 10
MOST_FAULTS: Final = 3  # after this number of faults, the module is off until the next start
MODULE: Final = "tollhouse_native"

_log = logging.getLogger(__name__)

# The kinds of fields in the module. EMPTY is any other kind: if such a field has a value, Python reads the
# record.
_TEXT, _BYTES, _NUMBER, _FLAG, _TAGS, EMPTY = range(6)
T = TypeVar("T")
FIELDS: Final = Inference.__struct_fields__
_KINDS: Final[Mapping[object, int]] = {str: _TEXT, bytes: _BYTES, int: _NUMBER, bool: _FLAG}
# The only mapping that the module reads. If a record has another mapping, Python reads the record.
_TEXTS: Final = "tags"


def inference_field_index(field: str) -> int:
    return FIELDS.index(field)


class RecordOffsets(NamedTuple):
    """
    The positions of records in packed bytes. `offsets`: 4 bytes for where each record begins and the last one
    ends. `odd`: indexes of records that Python must decode.
    """

    offsets: bytes
    odd: Sequence[int]


class SpanWriter(Protocol):
    """`tollhouse_native.Encoder`, which encodes packed records as spans."""

    def encode(
        self,
        packed_records: bytes,
        record_offsets: bytes,
        first_index: int,
        end_index: int,
        received_at_ns: int,
    ) -> tuple[bytes, int, int, int]:
        """
        Return the encoded spans, their number, the number of skipped duplicates stored for reference, and the
        index of the first record that was not encoded.
        """
        ...

    def learn(self, packed_records: bytes, record_offsets: bytes, record_index: int, encoded: bytes) -> bool:
        """Remember from an encoded example how records with this combination of fields are encoded."""
        ...


class HourlyRowAdder(Protocol):
    """`tollhouse_native.Sums`, which adds up packed records."""

    is_full: bool

    def add(
        self,
        packed_records: bytes,
        record_offsets: bytes,
        first_index: int,
        end_index: int,
        number: int,
        arrival_hour_and_latest_ns: tuple[int, int],
    ) -> int: ...

    def take(self) -> tuple[Sequence[tuple[int, bytes, list[int]]], Mapping[int, int]]:
        """
        Return rows (number of the hour, packed fields, measures), and each hour's lowest record number. This
        empties the adder.
        """
        ...


# of a span: name, trace, span and parent id, start, end, attributes, status code, names of the attributes that are
# still encoded, and encoded events; or the whole encoded span
DecodedSpan = tuple[
    str,
    str | None,
    str | None,
    str | None,
    int | None,
    int | None,
    dict[str, Any],
    int,
    list[str] | None,
    list[bytes] | None,
]
# attributes and the names of those that are still encoded; or the whole encoded resource
DecodedResource = tuple[dict[str, Any], list[str] | None]


class RequestReading(Protocol):
    """`tollhouse_native.Reading`, which decodes one request in steps."""

    items: int  # number of resources, scopes and spans

    def take(
        self,
    ) -> (
        Sequence[tuple[bytes | DecodedResource | None, tuple[str, str] | None, Sequence[bytes | DecodedSpan]]]
        | None
    ):
        """
        Decode some more. Return for each group its resource, the name and version of its scope, and spans.
        Resource and scope are None if they are those of the group before. Return None at the end.
        """
        ...


class RequestDecoder(Protocol):
    """`tollhouse_native.Decoder`, which decodes the spans of requests."""

    def open(self, request: bytes) -> RequestReading | None:
        """Return a reading, or None for an unusual layout of groups."""
        ...


class NativeFault(Exception):
    """Raised if the compiled module cannot process the input. The caller then uses Python."""


class NativeModule:
    """
    The compiled module, until it is off after too many faults. `panic`: the exception class of its internal
    errors.
    """

    def __init__(self, module: ModuleType) -> None:
        self.version: str = module.__version__
        self.panic: type[BaseException] = module.Panic
        self.faults = 0
        self._module = module
        self._table = _build_inference_field_table(module)

    @property
    def is_on(self) -> bool:
        return self.faults < MOST_FAULTS

    def record_positions(self, packed: bytes, count: int) -> RecordOffsets | None:
        """
        Return the positions of `count` records. Return None if the bytes contain anything else or the module
        is off; the caller then decodes them in Python.
        """
        found = self._try_native(self._table.walk, packed, count)
        return None if found is None else RecordOffsets(*found)

    def merge_sorted_ids(self, one: bytes, other: bytes) -> bytes | None:
        """Merge two runs of ids. Return None if the caller must do it in Python."""
        return self._try_native(self._module.merge, one, other)

    def low_bits_bitmap(self, ids: bytes, size: int) -> bytes | None:
        """
        Return a bitmap of `size` bytes in which the low bits of each id set one bit, or None if the caller
        must compute it in Python.
        """
        return self._try_native(self._module.marks, ids, size)

    def _try_native(self, work: Callable[..., T], *given: object) -> T | None:
        if not self.is_on:
            return None
        try:
            return work(*given)
        except self.panic as error:
            self.count_fault(error)
            return None

    def span_writer(self, **layout: Any) -> SpanWriter:
        writer: SpanWriter = self._module.Encoder(self._table, layout)
        return writer

    def row_adder(self, **plan: Any) -> HourlyRowAdder:
        adder: HourlyRowAdder = self._module.Sums(self._table, plan)
        return adder

    def request_decoder(self, rule_of_name: Callable[[str], int]) -> RequestDecoder:
        """`rule_of_name`: 0 for a value to decode, 1 for a value to leave out, 2 for a value to leave encoded."""
        decoder: RequestDecoder = self._module.Decoder(rule_of_name)
        return decoder

    def count_fault(self, error: BaseException) -> None:
        """Count an internal error. After MOST_FAULTS, the module is off until the next start."""
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
class CompiledModuleUse:
    """Whether the compiled module is used, and why it is not, for operators."""

    native: NativeModule | None = None
    reason: str = "no server runs"
    is_installed: bool = False  # the module was found, even if it is unusable

    @property
    def is_on(self) -> bool:
        return self.native is not None and self.native.is_on

    @property
    def version(self) -> str:
        return "" if self.native is None else self.native.version

    @property
    def status_text(self) -> str:
        if self.native is None:
            return f"off: {self.reason}"
        return (
            f"on, {self.version}"
            if self.is_on
            else f"off until the next start, because it failed {MOST_FAULTS} times"
        )


NO_NATIVE: Final = CompiledModuleUse()


def load_if_enabled(wanted: bool) -> CompiledModuleUse:
    if not wanted:
        return CompiledModuleUse(reason="server.native is false")
    try:
        return CompiledModuleUse(load_native(), is_installed=True)
    except ModuleNotFoundError as error:
        return CompiledModuleUse(reason=str(error))
    except ImportError as error:
        return CompiledModuleUse(reason=str(error), is_installed=True)


def load_native() -> NativeModule:
    """Load the compiled module. Raises ImportError with the reason."""
    module = importlib.import_module(MODULE)
    found = getattr(module, "INTERFACE", None)
    if found != INTERFACE:
        raise ImportError(
            f"{MODULE} has interface {found}, but this Tollhouse needs {INTERFACE}. Build it again"
        )
    return NativeModule(module)


def _build_inference_field_table(module: ModuleType) -> Any:
    """Return the table of record fields. A record may omit fields at its end, which are then read as None."""
    kinds, least = _native_field_kinds_and_required_count()
    return module.Table(tag=Inference.__struct_config__.tag, fields=list(kinds), least=least)


@cache
def _native_field_kinds_and_required_count() -> tuple[Sequence[tuple[int, bool]], int]:
    fields = msgspec.structs.fields(Inference)
    kinds = tuple(
        (_TAGS, False) if field.name == _TEXTS else _native_kind_and_optionality(field.type)
        for field in fields
    )
    return kinds, 1 + max(number for number, field in enumerate(fields) if not _can_be_omitted(field))


def _native_kind_and_optionality(type: Any) -> tuple[int, bool]:
    if type in _KINDS:
        return _KINDS[type], False
    *kinds, none = getattr(type, "__args__", (type, type))
    if len(kinds) == 1 and none is NoneType:
        return _KINDS.get(kinds[0], EMPTY), True
    return EMPTY, False


def _can_be_omitted(field: msgspec.structs.FieldInfo) -> bool:
    return field.default is None or field.default is False or field.default_factory is dict
