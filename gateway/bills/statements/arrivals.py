"""The newest day that each report source and account covers, for pulls and imports. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.bills.statements.puller import FAILED, PullState
from gateway.bills.statements.sources.list import SOURCES
from spool.statements import DAY_S, StatementInfo, parse_day


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportArrival:
    """
    How far the reports of one source and account have arrived. `until` is the end of the newest covered day,
    or None. Days are final after `settle_s` seconds.

    `pull` names the pull and `every` is its interval in seconds. Imported reports have no pull, so `pull` is
    "". `months` (such as 2026-10) lists the months with imported days. `failure` is the reason if the last
    pull failed, and `refused_since` the time since when its reports are refused.
    """

    source: str
    account: str
    settle_s: float
    until: float | None
    pull: str = ""
    every: float = 0.0
    failure: str = ""
    refused_since: float | None = None
    months: Sequence[str] = ()


def report_arrivals(
    infos: Sequence[StatementInfo], pulls: Sequence[PullState], *, settle_s: float = 0
) -> Sequence[ReportArrival]:
    """
    Return how far reports have arrived: one Arrival per pull, then one per imported source and account that
    no pull covers.
    """
    return [
        *_report_arrivals_of_pulls(infos, pulls, settle_s),
        *_report_arrivals_of_imports(infos, pulls, settle_s),
    ]


def _report_arrivals_of_pulls(
    infos: Sequence[StatementInfo], pulls: Sequence[PullState], settle_s: float
) -> Iterator[ReportArrival]:
    for pull in pulls:
        # A fetched day counts as arrived even if the provider reported nothing for it.
        known = [float(info.end) for info in infos if _is_from_pull(info, pull)]
        if pull.pulled_to is not None:
            known.append(float(parse_day(pull.pulled_to) + DAY_S))
        yield ReportArrival(
            source=pull.source,
            account=pull.account,
            settle_s=_seconds_until_report_is_complete(pull.source, settle_s),
            until=max(known, default=None),
            pull=pull.name,
            every=pull.every,
            failure=pull.reason if pull.state == FAILED else "",
            refused_since=pull.refused_since,
        )


def _report_arrivals_of_imports(
    infos: Sequence[StatementInfo], pulls: Sequence[PullState], settle_s: float
) -> Iterator[ReportArrival]:
    days: dict[tuple[str, str], set[int]] = defaultdict(set)
    for info in infos:
        if not any(_is_from_pull(info, pull) for pull in pulls):
            days[info.source, info.account] |= {*range(info.start, info.end, DAY_S)}
    for (source, account), covered in sorted(days.items()):
        yield ReportArrival(
            source=source,
            account=account,
            settle_s=_seconds_until_report_is_complete(source, settle_s),
            until=float(max(covered) + DAY_S),
            months=sorted({datetime.fromtimestamp(day, UTC).strftime("%Y-%m") for day in covered}),
        )


def _is_from_pull(info: StatementInfo, pull: PullState) -> bool:
    return info.source == pull.source and pull.account in ("", info.account)


def is_report_in_parts(source: str) -> bool:
    return source in SOURCES and SOURCES[source].in_parts


def _seconds_until_report_is_complete(source: str, settle_s: float) -> float:
    return max(SOURCES[source].settle_s if source in SOURCES else 0.0, settle_s)
