"""Detectors for senders that state less than before, or no usage, by source and sender version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from gateway.intake.start_times import remedy_for_start_times
from gateway.money.insights.detector_facts import DAY_S, InsightFacts, mark_impossible_in_demo
from gateway.money.insights.findings import build_finding, format_percent, printable_name, sort_by_impact
from spool.registry.insights import LOW, Finding
from spool.sender_fields import NO_VERSION, OTHER, SEVERAL, FieldCounts, sum_counts

LEAST_CALLS = 50  # minimum calls of a sender version before it is judged
LOST_SHARE = 0.1  # a field counts as lost if at most this share of the new version's calls have it
STATED_SHARE = 0.9  # a field counts as usual if at least this share of the previous version's calls have it
UNCOUNTED_SHARE = 0.5
MOVED_SHARE = 0.2  # a larger change in a share of the calls is shown as a possible reason for a lost field
ENDS_S = 7 * DAY_S  # seconds after the last call of a version until it counts as replaced

# fields of a call -> their names in the text of a finding
_FIELDS = {
    "model": "model",
    "provider": "provider",
    "input": "input tokens",
    "output": "output tokens",
    "cache": "cache tokens",
    "cost": "cost",
    "user": "user",
    "session": "session",
    "team": "team",
    "id": "id of the call",
}
_NUMBERS = re.compile(r"\d+|\D+")

VersionDayCounts = Sequence[FieldCounts]  # daily counts of one sender version, the newest first


def _versions_by_source(facts: InsightFacts) -> Mapping[str, Mapping[str, VersionDayCounts]]:
    sources: dict[str, dict[str, list[FieldCounts]]] = {}
    for day in sorted(facts.sender_fields, reverse=True):
        for (source, version), counts in facts.sender_fields[day].items():
            if OTHER not in (source, version):
                sources.setdefault(source, {}).setdefault(version, []).append(counts)
    return sources


@mark_impossible_in_demo("all senders of a demo month keep their version")
def lost_field(facts: InsightFacts) -> Sequence[Finding]:
    """Find versions of a sender that no longer state a field that the version before stated."""
    findings: list[Finding] = []
    for source, versions in _versions_by_source(facts).items():
        stating = {version: days for version, days in versions.items() if version != NO_VERSION}
        by_age = sorted(stating, key=lambda version: _version_age_key(version, stating[version]))
        for before, version in _consecutive_versions(by_age, stating):
            if facts.now - stating[version][0].last <= ENDS_S:
                findings += _lost_field_findings(source, before, stating[before], version, stating[version])
    return sort_by_impact(findings)


def _version_age_key(version: str, days: VersionDayCounts) -> tuple[float, Sequence[tuple[bool, int, str]]]:
    parts = _NUMBERS.findall(version)
    return days[-1].first, [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def _consecutive_versions(
    by_age: Sequence[str], versions: Mapping[str, VersionDayCounts]
) -> Iterator[tuple[str, str]]:
    enough = [name for name in by_age if sum(day.calls for day in versions[name]) >= LEAST_CALLS]
    return pairwise(enough)


def _sum_newest_counts(days: VersionDayCounts) -> FieldCounts:
    return sum_counts(days[: _number_of_newest_days_with_enough_calls(days)])


def _number_of_newest_days_with_enough_calls(days: VersionDayCounts) -> int:
    calls = 0
    for number, day in enumerate(days, start=1):
        calls += day.calls
        if calls >= LEAST_CALLS:
            return number
    return len(days)


def _lost_field_findings(
    source: str, before: str, earlier: VersionDayCounts, version: str, days: VersionDayCounts
) -> Iterator[Finding]:
    old = _sum_newest_counts(earlier)
    if not _are_senders_comparable(old, _sum_newest_counts(days)):
        return
    for field, words in _FIELDS.items():
        lacking = _sum_newest_days_without_field(days, field)
        if lacking is not None and old.fields.get(field, 0) >= STATED_SHARE * old.calls:
            yield _lost_field_finding(source, (before, old), (version, lacking), field, words)


def _are_senders_comparable(old: FieldCounts, new: FieldCounts) -> bool:
    if len(old.senders) == SEVERAL or len(new.senders) == SEVERAL:
        return len(old.senders) == len(new.senders)
    return old.senders == new.senders


def _sum_newest_days_without_field(days: VersionDayCounts, field: str) -> FieldCounts | None:
    """
    Sum the counts of the newest days on which calls lack the field. Return None if the newest days have it.
    """
    lacking = None
    for number in range(_number_of_newest_days_with_enough_calls(days), len(days) + 1):
        counts = sum_counts(days[:number])
        if counts.fields.get(field, 0) > LOST_SHARE * counts.calls:
            break
        lacking = counts
    return lacking


def _lost_field_finding(
    source: str, old: tuple[str, FieldCounts], new: tuple[str, FieldCounts], field: str, label: str
) -> Finding:
    (before, earlier), (version, counts) = old, new
    shown = printable_name(source)
    lost = f"{counts.fields.get(field, 0):,} of {counts.calls:,}"
    had = format_percent(earlier.fields.get(field, 0), earlier.calls)
    moved = "".join(
        _describe_largest_share_change(kind, earlier, counts) for kind in ("provider", "operation")
    )
    return build_finding(
        "lost_field",
        (source, version, field),
        title=f"{shown} {printable_name(version)} states no {label}: {lost}; {printable_name(before)}: {had}",
        seen=(
            f"Of the newest {counts.calls:,} calls of {shown} {printable_name(version)}, "
            f"{counts.fields.get(field, 0):,} state "
            f"the field ({label}). Of {earlier.calls:,} calls of {printable_name(before)}, {had} stated it.{moved}"
        ),
        advice=(
            f"Read the release notes of {shown}, and compare one payload of each version with `tollhouse explain "
            "--why`. The insight ends when the field returns, or seven days after the last call of the version."
        ),
        category="coverage",
        effort=LOW,
        newest=counts.last,
    )


def _describe_largest_share_change(kind: str, earlier: FieldCounts, counts: FieldCounts) -> str:
    before: Mapping[str, int] = getattr(earlier, f"{kind}s")
    now: Mapping[str, int] = getattr(counts, f"{kind}s")

    def share_change(name: str) -> float:
        return round(now.get(name, 0) / counts.calls - before.get(name, 0) / earlier.calls, 6)

    most = max(sorted({*before, *now}), key=lambda name: abs(share_change(name)), default="")
    if abs(share_change(most)) <= MOVED_SHARE:
        return ""
    shares = (
        f"from {format_percent(before.get(most, 0), earlier.calls)} to "
        f"{format_percent(now.get(most, 0), counts.calls)}"
    )
    return f" A possible reason: the share of the {kind} {printable_name(most)} went {shares} of the calls."


@mark_impossible_in_demo("all successful calls of a demo month state usage")
def uncounted_calls(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find versions of a sender whose successful calls mostly lack token counts, though their operations are
    billed by tokens.

    The examined day is the newest of today and yesterday (UTC) with enough calls.
    """
    today = int(facts.now // DAY_S)
    findings = {}
    for day in (today - 1, today):
        for (source, version), counts in facts.sender_fields.get(day, {}).items():
            if counts.billed >= LEAST_CALLS and OTHER not in (source, version):
                findings[source, version] = counts
    return sort_by_impact(
        _uncounted_calls_finding(source, version, counts)
        for (source, version), counts in findings.items()
        if counts.uncounted >= UNCOUNTED_SHARE * counts.billed
    )


@mark_impossible_in_demo("a demo month has no calls of another time")
def misdated_calls(facts: InsightFacts) -> Sequence[Finding]:
    """Find senders whose clock or unit of time is wrong, so that reports of the current time lack their calls."""
    counts: Counter[tuple[str, str]] = Counter()
    newest: dict[tuple[str, str], float] = {}
    for day in facts.sender_fields.values():
        for (source, _), of_day in day.items():
            for year_and_sender, count in of_day.misdated.items():
                key = (source, year_and_sender)
                counts[key] += count
                newest[key] = max(newest.get(key, 0.0), of_day.last)
    return sort_by_impact(
        _misdated_calls_finding(*key, count, newest[key])
        for key, count in counts.items()
        if facts.now - newest[key] <= ENDS_S and key[1] != OTHER
    )


def _misdated_calls_finding(source: str, year_and_sender: str, count: int, newest: float) -> Finding:
    year, _, sender = year_and_sender.partition(" ")
    shown = printable_name(sender) if sender else "a sender without a key"
    is_ahead = year.startswith("+")
    remedy = remedy_for_start_times(int(year), is_ahead=is_ahead)
    return build_finding(
        "misdated_calls",
        (source, year_and_sender),
        title=f"{count:,} calls of {shown} begin in {int(year)}{', ahead of the clock' if is_ahead else ''}",
        seen=(
            f"{count:,} calls and counters of {printable_name(source)} that {shown} sent begin in {int(year)}{remedy}"
        ),
        advice=(
            "Set the clock of the sender, or the unit of its times. If you imported old logs on purpose, dismiss the "
            "insight. It ends seven days after the last such call."
        ),
        category="coverage",
        effort=LOW,
        newest=newest,
    )


def _uncounted_calls_finding(source: str, version: str, counts: FieldCounts) -> Finding:
    sender = " ".join([printable_name(source), *([printable_name(version)] if version else [])])
    return build_finding(
        "uncounted_calls",
        (source, version),
        title=f"{counts.uncounted:,} of {counts.billed:,} calls of {sender} state no usage",
        seen=(
            f"On one day, {counts.uncounted:,} of {counts.billed:,} successful calls of {sender} had no token count "
            "and no other usage, though their operations are billed by tokens. Such a call counts as $0, unless its "
            "cost was reported."
        ),
        advice=(
            "Set the sender to report usage. For OpenAI streams, set `stream_options.include_usage`. "
            "`tollhouse explain --why` shows which attributes Tollhouse reads."
        ),
        category="prices",
        effort=LOW,
        newest=counts.last,
    )
