"""
The table of callers: which sessions, users, traces and services reported calls, and when.

Each key has its own entry for each caller, so no key can change or push out what another key reported. An
entry holds up to `MOST_KINDS` kinds of calls. The facts of further kinds have entries of their own.

If the table is full, the key that takes up most of it loses its entry without calls for the longest time.
These times are accurate to `PLACED_S`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import TypeAlias

import msgspec

from spool.shares import FairlySharedNames

WINDOW_S = 3600.0  # seconds; a counter may repeat calls reported at most this long before it
# seconds for which a caller is known, a minute more than WINDOW_S because counters wait before they count
KNOWN_S = WINDOW_S + 60.0
# A caller is stored at most once in this interval. So after a start, a caller may be forgotten up to this
# much too early.
KEEP_EVERY_S = 600.0
PLACED_S = 60.0  # minimum time between two moves of an entry to the end of its key's queue
# maximum entries with new calls that get a second chance before an entry is removed
SECOND_CHANCES = 8
NAME_BYTES = 16  # bytes of a fact's digest in memory
MOST_KINDS = 256  # maximum kinds of calls per caller, because a lookup reads all of them
# an entry with more kinds of calls counts as several senders, one for each full or partial group of this size
KINDS_PER_PLACE = 5


# A kind consists of the digests by which counters find its calls. It is bytes, because bytes know their hash, and
# unlike tuples the garbage collector never visits them.
CallKind: TypeAlias = bytes


def fact_digests_of_kind(kind: CallKind) -> Iterator[bytes]:
    for begin in range(0, len(kind), NAME_BYTES):
        yield kind[begin : begin + NAME_BYTES]


class ReportedCalls(msgspec.Struct, eq=False, gc=False):
    """
    When one key last reported calls of one caller, by kind of call (service and models).
    """

    name: str
    key: str
    at: float  # time of the last call of any kind
    kept_at: float  # when the last interval of `KEEP_EVERY_S` began
    placed_at: float  # when the entry was moved to the end of its key's queue
    due_at: float  # when the entry must be moved again, or queued for storage
    kind: CallKind | None  # the only kind of the entry, or None if it has several
    # kind -> time of its last call, for kinds queued for storage since `kept_at`; None for a single kind
    times: dict[CallKind, float] | None
    # the same for kinds that were not queued for storage since `kept_at`
    earlier: dict[CallKind, float]
    others: dict[str, ReportedCalls] | None = None  # entries for the same caller under other keys

    def last_reported_at(self, fact_digest: bytes) -> float:
        """
        Return when calls with a fact, such as a model (as a digest), were last reported, or -inf if none
        were.
        """
        if self.kind is not None:
            return self.at if fact_digest in self.kind else -inf
        return max(
            _last_report_time_of_fact(self.times or {}, fact_digest),
            _last_report_time_of_fact(self.earlier, fact_digest),
        )

    @property
    def used_caller_slots(self) -> int:
        kinds = len(self.times or ()) + len(self.earlier)
        return max(1, -(-kinds // KINDS_PER_PLACE))


_NO_TIMES: dict[CallKind, float] = {}  # shared, so no code may add to it


def _last_report_time_of_fact(times: Mapping[CallKind, float], fact_digest: bytes) -> float:
    return max((at for kind, at in times.items() if fact_digest in kind), default=-inf)


class KnownCallers:
    """
    All callers (sessions, users, traces, services) with reported calls. `entries` is public because
    `ReportedCallers` reads it for each span.
    """

    def __init__(self, max_callers: int) -> None:
        self.entries: dict[str, ReportedCalls] = {}
        self.pushed_out = 0  # number of entries removed early because of the limit
        self._queue: FairlySharedNames[str] = FairlySharedNames(max_callers)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def used_caller_slots_by_sender_key(self) -> Mapping[str, int]:
        """
        Return by key how many places it uses of the limit of callers. An entry uses one for each
        `KINDS_PER_PLACE` kinds of calls.
        """
        return self._queue.held

    def last_reported_at(self, caller: str, fact_digest: bytes) -> float:
        """
        Return when any key last reported calls of a caller with a fact, such as a model (as a digest), or
        -inf if none did.
        """
        newest = -inf
        for name in (caller, _fact_entry_name(caller, fact_digest)):
            entry = self.entries.get(name)
            if entry is not None:
                newest = max(newest, entry.last_reported_at(fact_digest))
                if entry.others is not None:
                    newest = max(
                        newest, *(other.last_reported_at(fact_digest) for other in entry.others.values())
                    )
        return newest

    def note_calls(
        self, caller: str, reported_at_by_kind: Mapping[CallKind, float], sender_key: str
    ) -> Collection[CallKind]:
        """
        Note calls of a caller, by kind and time. Return the kinds that must be stored, because they were not
        queued for storage in the last `KEEP_EVERY_S`.
        """
        when = next(iter(reported_at_by_kind.values()))
        entry = self.entries.get(caller)
        if entry is None or entry.key != sender_key:
            entry = self._find_calls_reported_with_key(caller, sender_key)
            if entry is None:
                self._add_entry(caller, reported_at_by_kind, when, sender_key)
                return reported_at_by_kind
        if when >= entry.due_at:
            self._move_to_end_and_set_next_due(entry, when)
        times = entry.times
        if times is not None and entry.at <= when and reported_at_by_kind.keys() <= times.keys():
            times.update(reported_at_by_kind)
            entry.at = when
            return ()
        return self._note_kinds_and_list_unstored(entry, reported_at_by_kind, when)

    def _find_calls_reported_with_key(self, name: str, sender_key: str) -> ReportedCalls | None:
        entry = self.entries.get(name)
        if entry is not None and entry.key != sender_key:
            return None if entry.others is None else entry.others.get(sender_key)
        return entry

    def _move_to_end_and_set_next_due(self, entry: ReportedCalls, reported_at: float) -> None:
        self._move_to_end(entry, reported_at)
        if reported_at - entry.kept_at >= KEEP_EVERY_S:
            entry.kept_at = reported_at
            if entry.times is not None:
                places, known = entry.used_caller_slots, {**entry.earlier, **entry.times}
                entry.earlier = {kind: at for kind, at in known.items() if reported_at - at <= KNOWN_S}
                entry.times = {}
                self._queue.add_slots(entry.key, entry.used_caller_slots - places)
        entry.due_at = min(reported_at + PLACED_S, entry.kept_at + KEEP_EVERY_S)

    def _move_to_end(self, entry: ReportedCalls, reported_at: float) -> None:
        self._queue.move_name_to_newest(entry.name, entry.key)
        entry.placed_at = reported_at

    def _note_kinds_and_list_unstored(
        self, entry: ReportedCalls, reported_at_by_kind: Mapping[CallKind, float], reported_at: float
    ) -> Collection[CallKind]:
        if entry.times is None:
            if len(reported_at_by_kind) == 1 and entry.kind in reported_at_by_kind:
                is_due = entry.at < entry.kept_at
                entry.at = max(entry.at, reported_at)
                return reported_at_by_kind if is_due else ()
            entry.times, entry.earlier = {}, {}
            if entry.kind is not None:
                (entry.times if entry.at >= entry.kept_at else entry.earlier)[entry.kind] = entry.at
                entry.kind = None
        places, times, earlier = entry.used_caller_slots, entry.times, entry.earlier
        due, too_many = list[CallKind](), list[CallKind]()
        for kind in reported_at_by_kind:
            if kind in times:
                times[kind] = max(times[kind], reported_at)
            elif kind in earlier or len(times) + len(earlier) < MOST_KINDS:
                times[kind] = max(earlier.pop(kind, reported_at), reported_at)
                due.append(kind)
            else:
                too_many.append(kind)
        entry.at = max(entry.at, reported_at)
        if entry.used_caller_slots > places:
            self._queue.add_slots(entry.key, entry.used_caller_slots - places)
            self._remove_surplus_callers()
        for kind in too_many:
            if self._note_facts_and_check_if_storing_due(entry.name, kind, reported_at, entry.key):
                due.append(kind)
        return due

    def _note_facts_and_check_if_storing_due(
        self, caller: str, kind: CallKind, reported_at: float, sender_key: str
    ) -> bool:
        """
        Note each fact of a reported call (a digest, such as of its model) in its own entry. Return whether
        the next commit must store any of them.
        """
        is_due = False
        for fact in fact_digests_of_kind(kind):
            name = _fact_entry_name(caller, fact)
            entry = self._find_calls_reported_with_key(name, sender_key)
            if entry is None:
                self._add_entry(name, {fact: reported_at}, reported_at, sender_key)
                is_due = True
                continue
            if reported_at >= entry.due_at:
                self._move_to_end_and_set_next_due(entry, reported_at)
            is_due |= entry.at < entry.kept_at
            entry.at = max(entry.at, reported_at)
        return is_due

    def _add_entry(
        self, name: str, reported_at_by_kind: Mapping[CallKind, float], reported_at: float, sender_key: str
    ) -> None:
        places = 1
        if len(reported_at_by_kind) == 1:
            [kind] = reported_at_by_kind
            entry = ReportedCalls(
                name,
                sender_key,
                reported_at,
                reported_at,
                reported_at,
                reported_at + PLACED_S,
                kind,
                None,
                _NO_TIMES,
            )
        else:
            times = dict(reported_at_by_kind) if len(reported_at_by_kind) <= MOST_KINDS else {}
            entry = ReportedCalls(
                name,
                sender_key,
                reported_at,
                reported_at,
                reported_at,
                reported_at + PLACED_S,
                None,
                times,
                _NO_TIMES,
            )
            places = entry.used_caller_slots
        first = self.entries.setdefault(name, entry)
        if first is not entry:
            if first.others is None:
                first.others = {}
            first.others[sender_key] = entry
        self._queue.add_name(name, sender_key, places)
        if len(reported_at_by_kind) > MOST_KINDS:
            self._note_kinds_and_list_unstored(entry, reported_at_by_kind, reported_at)
        elif len(self._queue) > self._queue.most:
            self._remove_surplus_callers()

    def _remove_surplus_callers(self) -> None:
        chances = SECOND_CHANCES
        while (surplus := self._queue.name_and_owner_to_remove()) is not None:
            entry = self._find_calls_reported_with_key(*surplus)
            assert entry is not None
            if chances and entry.at > entry.placed_at:
                chances -= 1
                self._move_to_end(entry, entry.at)
            else:
                self._remove_entry(entry)
                self.pushed_out += 1

    def forget_callers_before(self, before_time: float, max_callers: int) -> int:
        forgotten = 0
        for key in list(self._queue.held):
            while forgotten < max_callers and (name := self._queue.oldest_name(key)) is not None:
                entry = self._find_calls_reported_with_key(name, key)
                if entry is None or entry.at >= before_time:
                    break
                self._remove_entry(entry)
                forgotten += 1
        return forgotten

    def _remove_entry(self, entry: ReportedCalls) -> None:
        first = self.entries[entry.name]
        others = first.others
        if first is not entry:
            assert others is not None
            del others[entry.key]
            first.others = others or None
        elif others is None:
            del self.entries[entry.name]
        else:
            _, following = others.popitem()
            following.others = others or None
            self.entries[entry.name] = following
        self._queue.remove_name(entry.name, entry.key, entry.used_caller_slots)


def _fact_entry_name(caller: str, fact_digest: bytes) -> str:
    return f"\0{fact_digest.hex()}{caller}"
