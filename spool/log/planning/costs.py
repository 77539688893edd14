"""
Rules for a call with several reported costs or models.

Any other cost replaces an assistant's guess. A final cost also replaces a cost that the same key reported.
Otherwise the first cost counts. Any other report also replaces the provider and the models of an assistant,
which knows only the model that it asked for. Which kinds of cost and model were reported is stored as names
of the record, so that it survives a restart and is known for both records if two become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from spool.identity import RecordIdentity, derived_dedup_key
from spool.record import Inference


class CostReliability(IntEnum):
    """How reliable a reported cost is."""

    NONE = 0
    GUESS = 1
    REPORTED = 2
    FINAL = 3


def has_cost(record: Inference) -> bool:
    return record.cost is not None or bool(record.charges)


def cost_reliability(report: Inference, identity: RecordIdentity) -> CostReliability:
    if not has_cost(report):
        return CostReliability.NONE
    if identity.is_of_assistant:
        return CostReliability.GUESS
    return CostReliability.FINAL if identity.is_final else CostReliability.REPORTED


def dedup_flags_of_first_report(report: Inference, identity: RecordIdentity) -> tuple[bytes, ...]:
    reliability = cost_reliability(report, identity)
    if identity.is_of_assistant:
        asked = _asked_model_dedup_flag(report.id)
        return (asked, _guessed_cost_dedup_flag(report.id)) if reliability else (asked,)
    return (_final_cost_dedup_flag(report.id),) if reliability == CostReliability.FINAL else ()


class CostRules:
    """
    The rules for several costs of a call. Further ids of the record store which kinds were reported.
    `is_dedup_key_stored`: returns whether an id is stored.
    """

    def __init__(self, is_dedup_key_stored: Callable[[bytes], bool]) -> None:
        self._is_known = is_dedup_key_stored

    def can_replace_cost(
        self, known_record: Inference, reliability: CostReliability, sender_key: str | None
    ) -> bool:
        """
        Return whether a report of this key may replace the call's cost. Without this rule, the holder of any
        key could rewrite costs that other keys reported.
        """
        if self.is_cost_guessed(known_record):
            return reliability > CostReliability.GUESS
        return reliability == CostReliability.FINAL and self._is_cost_from(known_record, sender_key)

    def decide_if_later_cost_counts(
        self, first_record: Inference, later_record: Inference, sender_keys: Iterable[str | None]
    ) -> tuple[bool, tuple[bytes, ...]]:
        """
        Return whether the later record's cost counts, and the ids to store with the first record to note
        this. `sender_keys`: sender keys that may have reported the costs.
        """
        rank, first_rank = (
            self._known_cost_reliability(later_record),
            self._known_cost_reliability(first_record),
        )
        if rank <= first_rank:
            return False, ()
        owners = [key for key in dict.fromkeys(sender_keys) if self._is_cost_from(later_record, key)]
        if first_rank > CostReliability.GUESS and not any(
            self._is_cost_from(first_record, key) for key in owners
        ):
            return False, ()
        return True, self.dedup_flags_of_later_cost(first_record, rank, owners)

    def dedup_flags_of_later_cost(
        self, known_record: Inference, reliability: CostReliability, sender_keys: Sequence[str | None]
    ) -> tuple[bytes, ...]:
        """
        Return ids to store with a record, which note that its cost is from a report of one of these keys.
        """
        if reliability == CostReliability.GUESS:
            return (_guessed_cost_dedup_flag(known_record.id),)
        names: tuple[bytes, ...] = (
            (_final_cost_dedup_flag(known_record.id),) if reliability == CostReliability.FINAL else ()
        )
        if known_record.sender_key in sender_keys and not self._is_known(
            _guessed_cost_dedup_flag(known_record.id)
        ):
            return names
        return (
            *names,
            _later_cost_dedup_flag(known_record.id),
            *[_cost_from_key_dedup_flag(known_record.id, key) for key in sender_keys],
        )

    def _known_cost_reliability(self, known_record: Inference) -> CostReliability:
        if not has_cost(known_record):
            return CostReliability.NONE
        if self._is_known(_final_cost_dedup_flag(known_record.id)):
            return CostReliability.FINAL
        return CostReliability.GUESS if self.is_cost_guessed(known_record) else CostReliability.REPORTED

    def is_model_only_asked_for(self, known_record: Inference) -> bool:
        """Return whether only assistants stated the model of a call."""
        return self._is_known(_asked_model_dedup_flag(known_record.id)) and not self._is_known(
            served_model_dedup_flag(known_record.id)
        )

    def is_cost_guessed(self, known_record: Inference) -> bool:
        return self._is_known(_guessed_cost_dedup_flag(known_record.id)) and not self._is_known(
            _later_cost_dedup_flag(known_record.id)
        )

    def _is_cost_from(self, known_record: Inference, sender_key: str | None) -> bool:
        """
        Return whether the key reported the record's cost. `sender_key` of a record is only the key of its
        first report.
        """
        if self._is_known(_later_cost_dedup_flag(known_record.id)):
            return self._is_known(_cost_from_key_dedup_flag(known_record.id, sender_key))
        return known_record.sender_key == sender_key


def served_model_dedup_flag(record_id: bytes) -> bytes:
    """Return the id to store with a record whose first model was replaced by that of another report."""
    return derived_dedup_key(record_id, "served model")


def _asked_model_dedup_flag(record_id: bytes) -> bytes:
    return derived_dedup_key(record_id, "asked model")


def _guessed_cost_dedup_flag(record_id: bytes) -> bytes:
    return derived_dedup_key(record_id, "guessed cost")


def _final_cost_dedup_flag(record_id: bytes) -> bytes:
    return derived_dedup_key(record_id, "final cost")


def _later_cost_dedup_flag(record_id: bytes) -> bytes:
    return derived_dedup_key(record_id, "cost of a later report")


def _cost_from_key_dedup_flag(record_id: bytes, sender_key: str | None) -> bytes:
    return derived_dedup_key(record_id, f"cost from {sender_key}")
