"""
Precedence of reports: a server's report decides what a call used, and a device's report only adds who made
it.

A device's key is on a laptop, so its holder may report anything under a known id. Reports by devices fill
each other's gaps. A server's report that measures the call replaces their facts, whichever report arrives
first. If the server's report measures nothing, the device's counts stay, because they are the only ones.

Which of the two reported a call is stored as names of the record, so it survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from spool.identity import dedup_key_of_parts, derived_dedup_key
from spool.log.amendments import TOKENS, replace_fields
from spool.log.planning.costs import has_cost
from spool.people import USER_EMAIL
from spool.processing import MARKS
from spool.record import DEVICE_KEYS, Inference

# Fields that Tollhouse itself sets, whatever a report states.
OF_RECORD: Final = frozenset({"id", "source", "shadow", "also", "counted_by", "sender_key"})
# Fields that say who made the call. A server's report replaces a device's.
OWNER: Final = ("user", "team", "session", "device", "run", "parent_run", "ancestors")
# Fields that a device may add to a call that a server measured. It may also add tags that decide no price.
ADDED: Final = ("request_id", "trace_id", "span_id", *OWNER)
# Fields that only servers set once a server measured the call. A field that they leave empty stays empty.
DECIDED: Final = frozenset(Inference.__struct_fields__) - OF_RECORD - {*ADDED, "tags"}
_MEASURES: Final = frozenset({*TOKENS, "cost", "charges", "meters", "status", "error_type"})
_ESTIMATE: Final = frozenset({"estimated_cost", "price_book", "cost_source"})
_EMPTY: Final = Inference(id=b"", source="")


def has_measurement(report: Inference) -> bool:
    """Return whether a report states a count, a meter, a cost, or an outcome other than `ok`."""
    return (
        report.status != "ok"
        or bool(report.meters)
        or has_cost(report)
        or any(getattr(report, name) is not None for name in TOKENS)
    )


def without_server_decided_fields(report: Inference) -> Inference:
    """Return only the fields of a report that a device may add to a call that a server measured."""
    return _blank_fields(report, DECIDED)


def _blank_fields(report: Inference, names: frozenset[str]) -> Inference:
    empty: dict[str, Any] = {name: getattr(_EMPTY, name) for name in names}
    tags = {name: value for name, value in report.tags.items() if name not in MARKS}
    return replace_fields(report, {**empty, "tags": tags})


class DeviceReportRules:
    """
    The rules for reports by devices. What devices reported is stored as further ids of the call's
    record. `is_dedup_key_stored`: returns whether an id is stored.
    """

    def __init__(self, is_dedup_key_stored: Callable[[bytes], bool]) -> None:
        self._is_known = is_dedup_key_stored

    def has_device_report(self, known_record: Inference) -> bool:
        """
        Return whether a device reported the call. If none did, no other fact about devices is stored with it.
        """
        return known_record.sender_key == DEVICE_KEYS or self._is_known(
            _reported_by_device_dedup_flag(known_record.id)
        )

    def is_only_from_devices(self, known_record: Inference) -> bool:
        if not self.has_device_report(known_record):
            return False
        if known_record.sender_key != DEVICE_KEYS and not self._is_known(
            _measured_by_device_dedup_flag(known_record.id)
        ):
            return False
        return not self._is_known(_measured_by_server_dedup_flag(known_record.id))

    def can_be_device_and_server_pair(self, known_record: Inference, report: Inference) -> bool:
        """
        Return whether `report` may be from a device while the call is from a server, or the other way round.
        """
        return (
            not self.is_only_from_devices(known_record)
            if report.sender_key == DEVICE_KEYS
            else self.has_device_report(known_record)
        )

    def owner_fields_stated_only_by_device(self, known_record: Inference) -> tuple[str, ...]:
        return (
            tuple(name for name in OWNER if self._is_stated_only_by_device(known_record, name))
            if self.has_device_report(known_record)
            else ()
        )

    def _is_stated_only_by_device(self, known_record: Inference, field_name: str) -> bool:
        if known_record.sender_key != DEVICE_KEYS and not self._is_known(
            _stated_by_device_dedup_flag(known_record.id, field_name)
        ):
            return False
        return not self._is_known(_stated_by_server_dedup_flag(known_record.id, field_name))

    def without_owner_replaced_by_server(
        self, known_record: Inference, later_report: LaterCallReport
    ) -> Inference:
        """
        Return the record without owner fields that only a device stated, if the server's later report states
        another value.
        """
        replaced: dict[str, Any] = {
            name: None
            for name in later_report.owner_fields_stated_by_server
            if getattr(known_record, name) not in (None, getattr(later_report.report, name))
            and self._is_stated_only_by_device(known_record, name)
        }
        if "user" in replaced:
            replaced["tags"] = {
                name: value for name, value in known_record.tags.items() if name != USER_EMAIL
            }
        return replace_fields(known_record, replaced) if replaced else known_record

    def dedup_flags_to_store(
        self, known_record: Inference, later_report: LaterCallReport, added_fields: Mapping[str, Any]
    ) -> Iterator[bytes]:
        yield _reported_by_device_dedup_flag(known_record.id)
        if later_report.is_server_measurement and self.is_only_from_devices(known_record):
            yield _measured_by_server_dedup_flag(known_record.id)
        for name in later_report.owner_fields_stated_by_server:
            if self._is_stated_only_by_device(known_record, name):
                yield _stated_by_server_dedup_flag(known_record.id, name)
        if known_record.sender_key == DEVICE_KEYS:
            return
        if later_report.is_of_device and later_report.has_measurement and not has_measurement(known_record):
            yield _measured_by_device_dedup_flag(known_record.id)
        yield from [
            _stated_by_device_dedup_flag(known_record.id, name)
            for name in later_report.claims
            if name in added_fields
        ]


class LaterCallReport(NamedTuple):
    """
    A later report or record of a call. `is_of_device`: only devices reported it. `claims`: the fields about
    who made the call (OWNER) that a device stated.
    """

    report: Inference
    is_of_device: bool
    claims: tuple[str, ...]

    @property
    def has_measurement(self) -> bool:
        return has_measurement(self.report)

    @property
    def is_server_measurement(self) -> bool:
        return not self.is_of_device and not self.report.shadow and self.has_measurement

    @property
    def owner_fields_stated_by_server(self) -> list[str]:
        report, claims = self.report, self.claims
        return [name for name in OWNER if name not in claims and getattr(report, name) is not None]


def classify_later_report(report: Inference) -> LaterCallReport:
    is_of_device = report.sender_key == DEVICE_KEYS
    return LaterCallReport(report, is_of_device, OWNER if is_of_device else ())


def without_device_measurements(known_record: Inference) -> Inference:
    """Return the parts of a call that stay when a server's report replaces a device's measurement."""
    if known_record.sender_key == DEVICE_KEYS:
        return without_server_decided_fields(known_record)
    return _blank_fields(known_record, _MEASURES | _ESTIMATE)


def changed_fields(known_record: Inference, new: Inference, *, is_open: bool) -> dict[str, Any]:
    """Return the fields that differ, with their new values. A closed call keeps its times."""
    names = {*DECIDED, *ADDED, "tags"} - (set() if is_open else {"start_time", "end_time"})
    return {
        name: value for name in sorted(names) if (value := getattr(new, name)) != getattr(known_record, name)
    }


# Flips bits of a record id. Every later report is looked up under the result, and flipping bits is ten times as
# fast as a new hash.
_HEARD: Final = int.from_bytes(dedup_key_of_parts(8, "reported by a device"))


def _reported_by_device_dedup_flag(record_id: bytes) -> bytes:
    return (int.from_bytes(record_id) ^ _HEARD).to_bytes(16)


def _measured_by_device_dedup_flag(record_id: bytes) -> bytes:
    return derived_dedup_key(record_id, "measured by a device")


def _measured_by_server_dedup_flag(record_id: bytes) -> bytes:
    return derived_dedup_key(record_id, "decided by a server")


def _stated_by_device_dedup_flag(record_id: bytes, field_name: str) -> bytes:
    return derived_dedup_key(record_id, f"a device states {field_name}")


def _stated_by_server_dedup_flag(record_id: bytes, field_name: str) -> bytes:
    return derived_dedup_key(record_id, f"a server states {field_name}")
