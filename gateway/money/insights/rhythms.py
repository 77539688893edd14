"""
Which sources and keys have stopped sending, judged by their own rhythm (docs/decisions/interfaces.md). Pure.

A rhythm is learned from the six weeks before the last record, so it does not change while the sender is silent. For
each hour of the week, it has the share of these weeks in which records arrived. A silence is the sum of these
shares over its hours: a weekend in which a sender never sends adds nothing, and a working hour nearly 1. Hours in
which Tollhouse did not run are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from gateway.money.insights.findings import MAX_FINDINGS
from gateway.monitoring.snapshot import SenderGauges
from spool.registry.keys import ENABLED, ApiKey
from spool.registry.tables.sender_hours import (
    HOUR_S,
    KEPT_HOURS,
    MAX_PAIRS,
    RUNNING,
    SenderHours,
    merge_sender_hours,
    newest_record_times,
)

SOURCE, KEY = "source", "key"
WEEK_H = 7 * 24
LEAST_WEEKS = 2  # minimum weeks of records before a sender is judged
LEAST_MISSED = 4.0  # minimum length of a silence in hours in which the sender usually sends
FACTOR = 3.0  # minimum ratio between a silence and the sender's longest usual silence
# A sender keeps a timetable if its records mostly arrive in the same hours each week. Its longest silence is then
# treated as an outage or a holiday.
TIMETABLE = 0.5
LEAST_DAYS = 10  # minimum days with records before a sender without a timetable is judged
MOST_SHOWN = 100  # maximum sources, and maximum keys, that `/metrics` shows
SETTLE_S = 300.0  # seconds after the end of an hour; by then, all gateways have stored its arrivals


@dataclass(frozen=True, slots=True)
class Rhythm:
    """
    The usual hours of a sender. `shares` has, for each hour of the week, the share of weeks in which records
    arrived. Its first element is the hour of the newest record, and each next one is an hour earlier. `usual`
    is the longest usual silence. A sender whose silence reaches `patience` has stopped.
    """

    shares: Sequence[float]
    usual: float
    patience: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderStop:
    """
    A source or key that stopped. `due` is the hour since the epoch in which its silence became too long.
    `others` are a source's keys, or the sources of a key.
    """

    kind: str
    name: str
    last: float
    rhythm: Rhythm
    due: int
    others: Sequence[str]


@lru_cache(maxsize=2 * MAX_PAIRS)
def learn_send_rhythm(record_hours: int, running_hours: int) -> Rhythm | None:
    """
    Learn the rhythm from hours with records and hours in which Tollhouse ran. Bit n stands for the hour that is n hours
    before the newest record. Return None if there is too little to learn from.
    """
    ages = range(record_hours.bit_length())
    if len(ages) < LEAST_WEEKS * WEEK_H:
        return None
    had = [bool(record_hours >> age & 1) for age in ages]
    could = [has or bool(running_hours >> age & 1) for age, has in enumerate(had)]
    overall = sum(had) / sum(could)
    with_records, counted = [0] * WEEK_H, [0] * WEEK_H
    for age in ages:
        with_records[age % WEEK_H] += had[age]
        counted[age % WEEK_H] += could[age]

    def share_in_other_weeks(age: int) -> float:
        """
        Return the share of other weeks with records in this hour of the week. This week is left out, because
        each silence would lower the share that measures it.
        """
        others = counted[age % WEEK_H] - 1
        return (with_records[age % WEEK_H] - had[age]) / others if others > 0 else overall

    silences = [0.0]
    for age in reversed(ages):
        if had[age]:
            silences.append(0.0)
        elif could[age]:
            silences[-1] += share_in_other_weeks(age)
    silences.sort()
    timetable = sum(share_in_other_weeks(age) for age in ages if had[age]) / sum(had)
    if timetable >= TIMETABLE:
        usual = silences[-2]
    elif len({age // 24 for age in ages if had[age]}) >= LEAST_DAYS:
        usual = silences[-1]
    else:
        return None
    shares = [n / total if total else 0.0 for n, total in zip(with_records, counted, strict=True)]
    return Rhythm(shares, usual, max(LEAST_MISSED, FACTOR * usual))


def find_long_silence(sender: SenderHours, running: SenderHours, *, now: float) -> tuple[Rhythm, int] | None:
    """
    Return the rhythm and the hour in which the silence became too long, or None if the silence is usual.
    """
    until = int((now - SETTLE_S) // HOUR_S)
    if until - sender.end <= LEAST_MISSED:
        return None
    ran = _active_hours_mask_until(running, sender.end) & ((1 << KEPT_HOURS) - 1)
    learned = learn_send_rhythm(sender.hours, ran)
    if learned is None:
        return None
    silence = 0.0
    for hour in range(sender.end + 1, until):
        if _has_records_in(running, hour):
            silence += learned.shares[(sender.end - hour) % WEEK_H]
            if silence >= learned.patience:
                return learned, hour
    return None


def _active_hours_mask_until(sender_hours: SenderHours, end_hour: int) -> int:
    shift = sender_hours.end - end_hour
    return sender_hours.hours >> shift if shift >= 0 else sender_hours.hours << -shift


def _has_records_in(hours: SenderHours, hour: int) -> bool:
    age = hours.end - hour
    return age >= 0 and bool(hours.hours >> age & 1)


@dataclass(frozen=True, slots=True)
class SenderStops:
    """
    Senders that stopped. `reported` has one entry per stop. `keys` has the names of all keys that stopped,
    reported or not.
    """

    reported: Sequence[SenderStop] = ()
    keys: Collection[str] = frozenset()


def stopped_senders(hours: Iterable[SenderHours], keys: Iterable[ApiKey], *, now: float) -> SenderStops:
    """
    Return the sources and keys that stopped, with the newest last record first.

    A key that was disabled or deleted or has expired is left out, with everything that it sent. Keys of devices are
    left out because devices report their own state. A stop is reported once: for the key if no other key sent the
    source, and for the source if all sources of the key have stopped.
    """
    all_hours = list(hours)
    running = next((each for each in all_hours if (each.source, each.key) == RUNNING), None)
    if running is None:
        return SenderStops()
    may_send = {key.name for key in keys if key.state(now) == ENABLED} | {""}
    pairs = [each for each in all_hours if each.source and each.key in may_send]
    of_sources, of_keys = defaultdict(list), defaultdict(list)
    for pair in pairs:
        of_sources[pair.source].append(pair)
        if pair.key:
            of_keys[pair.key].append(pair)
    sources = {
        name: stop
        for name, parts in of_sources.items()
        if (stop := _find_stop(SOURCE, name, parts, running, now))
    }
    stopped_keys = {
        name: stop for name, parts in of_keys.items() if (stop := _find_stop(KEY, name, parts, running, now))
    }
    shown_sources = {
        name: stop
        for name, stop in sources.items()
        if not (len(stop.others) == 1 and stop.others[0] in stopped_keys)
    }
    shown_keys = [
        stop
        for stop in stopped_keys.values()
        if not all(name in shown_sources and shown_sources[name].due <= stop.due for name in stop.others)
    ]
    reported = sorted(
        [*shown_sources.values(), *shown_keys], key=lambda stop: (-stop.last, stop.kind, stop.name)
    )
    return SenderStops(reported, frozenset(stopped_keys))


def sender_gauges(hours: Sequence[SenderHours], keys: Sequence[ApiKey], *, now: float) -> SenderGauges:
    """
    Return the metrics of senders for `/metrics`: the MOST_SHOWN sources and enabled keys that sent last, and
    the stops that the detector reports. The numbers are limited because each name is a series.
    """
    of_sources, of_keys = newest_record_times(hours)
    enabled = {key.name for key in keys if key.state(now) == ENABLED}
    found = stopped_senders(hours, keys, now=now).reported[:MAX_FINDINGS]
    return SenderGauges(
        sources=dict(islice(of_sources.items(), MOST_SHOWN)),
        keys=dict(islice(((name, at) for name, at in of_keys.items() if name in enabled), MOST_SHOWN)),
        stopped=[(stop.kind, stop.name) for stop in found],
    )


def _find_stop(
    kind: str, name: str, parts: Sequence[SenderHours], running: SenderHours, now: float
) -> SenderStop | None:
    whole = merge_sender_hours(parts)
    judged = find_long_silence(whole, running, now=now)
    if judged is None:
        return None
    learned, due = judged
    recent = [part for part in parts if whole.end - part.end < KEPT_HOURS]
    others = sorted({part.key if kind == SOURCE else part.source for part in recent})
    return SenderStop(kind=kind, name=name, last=whole.last, rhythm=learned, due=due, others=others)
