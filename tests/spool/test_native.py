"""The compiled module as seen from Python: whether it is used, and how its faults are handled."""

from __future__ import annotations

import logging
import sys
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec
import pytest

from exporters.destinations.otlp import OtlpEndpoint
from exporters.otlp.spans import SpanEncoder
from exporters.otlp.telemetry import TelemetryExporter
from exporters.settings import DestinationSettings
from spool.deliveries.values import Delivery, Settlement
from spool.ledger.ledger import Ledger
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry
from spool.log.runs import build_id_run, merge_sorted_ids
from spool.log.values import LogEntry
from spool.packed.native import INTERFACE, MODULE, MOST_FAULTS, NativeModule, load_if_enabled
from spool.packed.records import packed_records
from spool.record import Inference
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.exporters.test_telemetry import KeptClient
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

CALLS = [call(id=bytes([number]) * 16) for number in range(1, 6)]


class _PanicError(BaseException):
    pass


class _Walker:
    """A stand-in for the module's function that finds records. It treats records with another tag as odd."""

    def __init__(self, **table: Any) -> None:
        self._tag = table["tag"]

    def walk(self, packed: bytes, count: int) -> tuple[bytes, list[int]]:
        raws = [bytes(raw) for raw in codec.split_records(packed)]
        starts = [len(packed) - sum(map(len, raws))]
        for raw in raws:
            starts.append(starts[-1] + len(raw))
        odd = [place for place, raw in enumerate(raws) if msgspec.msgpack.decode(raw)[0] != self._tag]
        return array("I", starts).tobytes(), odd


class _Failing:
    is_full = False

    def __init__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object) -> None:
            raise _PanicError("index out of bounds")

        return fail


def module(interface: int = INTERFACE) -> ModuleType:
    made: Any = ModuleType(MODULE)
    made.INTERFACE, made.__version__, made.Panic = interface, "9.9", _PanicError
    made.Table, made.Encoder, made.Sums = _Walker, _Failing, _Failing
    made.merge, made.marks = _Failing().merge, _Failing().marks
    found: ModuleType = made
    return found


class PackedLog(FakeLog):
    """A log whose entries stay packed for readers that request it."""

    packed_reads = 0

    async def read(
        self, topic: str, first_number: int, last_number: int, **options: Any
    ) -> Sequence[LogEntry]:
        entries = await super().read(topic, first_number, last_number)
        native = options.get("native")
        if native is None:
            return entries
        self.packed_reads += 1
        return [packed_entry(native, entry) for entry in entries]


def packed_entry(native: NativeModule, entry: LogEntry) -> LogEntry:
    packed = codec.encode_records(list(entry.records))
    cached = CachedEntry(codec.split_records(packed), packed)
    records = packed_records(native, cached, entry.first, entry.first, entry.last, {})
    assert records is not None
    return LogEntry(topic=entry.topic, first=entry.first, committed_at=entry.committed_at, records=records)


def test_a_module_that_is_not_wanted_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`server.native = false` imports nothing, even if the module is installed."""
    monkeypatch.setitem(sys.modules, MODULE, module())
    assert load_if_enabled(True).is_on is True
    assert load_if_enabled(True).status_text == "on, 9.9"
    assert load_if_enabled(False).is_on is False
    assert load_if_enabled(False).version == ""
    assert load_if_enabled(False).status_text == "off: server.native is false"


def test_log_states_why_the_native_module_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the module is missing or from another release, the log states a reason on which an operator can act.
    """
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert not load_if_enabled(True).is_on
    assert MODULE in load_if_enabled(True).status_text
    monkeypatch.setitem(sys.modules, MODULE, module(INTERFACE + 1))
    other, ours = INTERFACE + 1, INTERFACE
    assert (
        f"off: {MODULE} has interface {other}, but this Tollhouse needs {ours}. Build it again"
        == load_if_enabled(True).status_text
    )


async def test_sums_are_counted_once_whatever_fails(caplog: pytest.LogCaptureFixture) -> None:
    """
    If the module fails, the count starts again, so that every record counts once. After three failures
    Tollhouse counts without the module.
    """
    native = NativeModule(module())
    log, plain = PackedLog(), await Ledger(new_in_memory_ledger(), clock=FakeClock()).load()
    ledger = await Ledger(new_in_memory_ledger(), clock=FakeClock(), native=native).load()
    log.add(CALLS)
    with caplog.at_level(logging.ERROR, logger="spool.packed.native"):
        assert 6 == await ledger.catch_up(log) == await plain.catch_up(log)
    assert native.faults == MOST_FAULTS
    assert native.is_on is False
    assert log.packed_reads == MOST_FAULTS
    assert [1, 2, 3] == [record.__dict__["faults"] for record in caplog.records]
    assert [] != await plain.usage_of_day(BEGIN) == await ledger.usage_of_day(BEGIN)


async def test_a_delivery_leaves_as_python_writes_it_where_the_module_fails() -> None:
    """After the module's first failure, and when it is off, Python encodes the delivery."""
    native, client = NativeModule(module()), KeptClient()
    settings = DestinationSettings(name="d", type="otlp", url="http://127.0.0.1:1")
    exporter = TelemetryExporter(client, OtlpEndpoint(settings, None))
    delivery = Delivery(id=1, route="d/ai-telemetry", first=1, last=5, attempts=0, idempotency_key="k")
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=BEGIN, records=CALLS)
    expected = SpanEncoder().encode_request(
        (record, BEGIN) for record in CALLS if isinstance(record, Inference)
    )
    entries = [packed_entry(native, entry)]
    for faults in (1, 2, 3, 3):
        assert Settlement(delivered=5) == await exporter.send(delivery, entries)
        assert client.body == expected
        assert native.faults == faults
    await exporter.close()


def test_runs_of_ids_are_merged_where_the_module_fails() -> None:
    """If the module fails, merged runs equal those of Python."""
    native = NativeModule(module())
    one, other = array("Q", [1, 5, 9]), array("Q", [2, 5])
    assert merge_sorted_ids(one, other) == merge_sorted_ids(one, other, native)
    with_it, without = build_id_run(1, 2, 3.0, one, native), build_id_run(1, 2, 3.0, one)
    assert without.marks == with_it.marks
    assert without.mask == with_it.mask
    assert 2 == native.faults
