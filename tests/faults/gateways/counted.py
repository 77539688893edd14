"""Compare the ledger's totals with the sent calls: number of calls and tokens per user, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.acceptance.conftest import Tollhouse
from tests.faults.oracle import SentCall
from tests.waiting import wait_until


def wait_until_counted(gateway: Tollhouse, next_number: int) -> None:
    """Wait until the ledger has counted every record below `next_number`."""

    def state() -> dict[str, Any]:
        found: dict[str, Any] = gateway.asked("/ledger")["ledger"]
        return found

    wait_until(lambda: state()["reach"] >= next_number and not state()["rebuilding"], "all is counted")


def differences(
    gateway: Tollhouse, calls: Iterable[SentCall], *, may_be: Iterable[SentCall] = ()
) -> Sequence[str]:
    """
    Return a line per user whose totals differ from the calls. Calls in `may_be` may be missing in the totals.
    """
    return list(_differences(gateway, list(calls), list(may_be)))


def _differences(gateway: Tollhouse, calls: Sequence[SentCall], may_be: Sequence[SentCall]) -> Iterator[str]:
    least, most = _sums(calls), _sums([*calls, *may_be])
    rows = gateway.json("report", "--by", "user", "--from", "2020-01-01")["rows"]
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for name in ("calls", "input_tokens"):
            found[row["user"] or "", name] += row[name]
    for place in sorted(most.keys() | found.keys()):
        if not least[place] <= found[place] <= most[place]:
            user, name = place
            yield f"the ledger has {found[place]} {name} of {user}, not {least[place]}"


def _sums(calls: Sequence[SentCall]) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    for call in calls:
        sums[call.user, "calls"] += 1
        sums[call.user, "input_tokens"] += call.tokens
    return sums
