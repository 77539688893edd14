"""Problems with keys that expire or have expired, for insights and for the list of what needs attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.money.insights.detector_facts import DAY_S
from gateway.money.insights.findings import finding_key, printable_name
from gateway.monitoring.snapshot import KeyGauges
from spool.ledger.periods import minute_text
from spool.registry.keys import ENABLED, EXPIRED, STATES, ApiKey
from spool.registry.notices import CRITICAL, INFO, WARNING
from spool.registry.tables.expired_tries import ExpiredKeyUses

EXPIRING_KEY = "expiring_key"  # the detector
IDLE_S = 30 * DAY_S  # seconds without use after which a key no longer counts as used
SOON_S = 14 * DAY_S
WARNING_S = 7 * DAY_S  # remaining seconds at which the expiry of a used key becomes a warning
CRITICAL_S = DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTrouble:
    """
    A problem with one key. It is one finding that becomes more severe. `newest` is when it became that severe, so that
    an addressed insight opens again.
    """

    key: ApiKey
    severity: str
    title: str
    seen: str
    newest: float

    @property
    def text(self) -> str:
        return f"{self.title}. {self.seen}"

    @property
    def key_of_finding(self) -> str:
        return finding_key(EXPIRING_KEY, (str(self.key.id),))


def is_recently_used(key: ApiKey, now: float) -> bool:
    return key.last_accessed is not None and now - key.last_accessed < IDLE_S


def key_gauges(
    keys: Sequence[ApiKey], tries: Mapping[int, ExpiredKeyUses], *, now: float, max_keys: int
) -> KeyGauges:
    """
    Return the metrics of keys for `/metrics`. At most `max_keys` keys that expire first have their own series.
    """
    count = Counter(key.state(now) for key in keys)
    ending = [(key.expires_at, key) for key in keys if key.expires_at is not None]
    ending.sort(key=lambda end: (end[0], end[1].name))
    used = [(key.name, at) for at, key in ending if key.state(now) == ENABLED and is_recently_used(key, now)]
    tried = [(key.name, tries[key.id].count) for _, key in ending if key.id in tries]
    return KeyGauges(
        states={state: count[state] for state in STATES},
        ends=dict(used[:max_keys]),
        tries=dict(tried[:max_keys]),
    )


def key_troubles(
    keys: Iterable[ApiKey], tries: Mapping[int, ExpiredKeyUses], *, now: float
) -> Sequence[KeyTrouble]:
    """
    Return the problems. The key that expires first is first. `tries` are requests made with expired keys, by
    key id.
    """
    found = [
        _expiring_key_trouble(key, now)
        if key.state(now) == ENABLED
        else _expired_key_trouble(key, tries, now)
        for key in keys
    ]
    troubles = [trouble for trouble in found if trouble is not None]
    return sorted(troubles, key=lambda trouble: (trouble.key.expires_at or 0.0, trouble.key.name))


def _expired_key_trouble(key: ApiKey, tries: Mapping[int, ExpiredKeyUses], now: float) -> KeyTrouble | None:
    tried = tries.get(key.id)
    if key.state(now) != EXPIRED or tried is None:
        return None
    when, newest = minute_text(tried.expires_at, now), minute_text(tried.newest, now)
    requests = "1 request was" if tried.count == 1 else f"{tried.count:,} requests were"
    return KeyTrouble(
        key=key,
        severity=CRITICAL,
        title=f"The API key {printable_name(key.name)} expired on {when} and is still used",
        seen=f"Since then, {requests} refused, the newest at {newest}.",
        newest=tried.newest,
    )


def _expiring_key_trouble(key: ApiKey, now: float) -> KeyTrouble | None:
    at = key.expires_at
    if at is None or at > now + SOON_S:
        return None
    severity, begin = INFO, at - SOON_S
    if is_recently_used(key, now) and at <= now + WARNING_S:
        severity, begin = (CRITICAL, at - CRITICAL_S) if at <= now + CRITICAL_S else (WARNING, at - WARNING_S)
    used = (
        "was never used"
        if key.last_accessed is None
        else f"was last used at {minute_text(key.last_accessed, now)}"
    )
    return KeyTrouble(
        key=key,
        severity=severity,
        title=f"The API key {printable_name(key.name)} expires on {minute_text(at, now)}",
        seen=f"The key {used}. After it expires, its requests are refused.",
        newest=begin,
    )
