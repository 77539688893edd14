"""Bodies to a gateway's door, again and again while a repeat can help, and what its answers say was done with them."""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import msgspec

from exporters.backoff import Backoff
from exporters.http.answers import retry_after_s
from gateway.cli.cuts import Body

ATTEMPTS: Final = 8
LONGEST_HINT_S: Final = 300.0
TIMEOUT_S: Final = 60.0
SLOWEST_BYTES_PER_S: Final = 64 * 1024
RECEIPT: Final = "Tollhouse-Receipt"

_BACKOFF: Final = Backoff()
_RETRYABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_HOPELESS: Final = frozenset({401, 403, 404, 405, 415, 501})


class Undeliverable(Exception):
    """Nothing will get through like this: the operator changes the key or the address, or comes back later."""


class Refused(Exception):
    """The gateway read this body and did not take it."""


class TooLarge(Refused):
    """It takes less at once."""


class _Later(Exception):
    """Not now; a repeat may get through."""

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


@dataclass
class Tally:
    """What became of what was sent."""

    accepted: int = 0
    ignored: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def note(self, answer: Answer) -> None:
        self.accepted += answer.accepted
        self.ignored += answer.ignored
        self.rejected.update(answer.rejected)


@dataclass(frozen=True)
class Answer:
    accepted: int
    ignored: int
    rejected: Counter[str]


class Courier:
    """One address and one key. Follows no redirect: the key would go along."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        key: str | None,
        *,
        tell: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`tell` hears why a body must wait, once for each."""
        self._session = session
        self._url = url
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": key} if key else {})
        self._tell = tell
        self._sleep = sleep

    async def send(self, body: Body) -> Answer:
        """Until it was taken; Refused when it never will be, Undeliverable when nothing will be."""
        for attempt in range(ATTEMPTS):
            try:
                return await self._post(body)
            except _Later as later:
                if attempt == ATTEMPTS - 1:
                    raise Undeliverable(f"{self._url} did not take it in {ATTEMPTS} attempts ({later})") from later
                if attempt == 0:
                    self._tell(f"{later}; trying again")
                await self._sleep(_BACKOFF.delay_s(attempt + 1, later.retry_after_s))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _post(self, body: Body) -> Answer:
        try:
            content = body.content
            async with self._session.post(
                self._url,
                data=io.BytesIO(content),
                headers=self._headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S + len(content) / SLOWEST_BYTES_PER_S),
            ) as response:
                said = await response.read()
        except aiohttp.ClientSSLError as error:
            raise Undeliverable(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _Later(str(error) or type(error).__name__) from error
        if 200 <= response.status < 300:
            if RECEIPT not in response.headers:
                raise Undeliverable(
                    f"what answers at {self._url} is no gateway: its {response.status} has no {RECEIPT}"
                )
            return _answer(said, response.headers[RECEIPT])
        problem = f"{response.status}: {_words(said)}"
        if response.status in _RETRYABLE:
            raise _Later(problem, _asked(response.headers.get("Retry-After")))
        if response.status < 400:
            raise Undeliverable(f"{response.status}: {self._url} sends elsewhere; name the address itself")
        if response.status in _HOPELESS:
            raise Undeliverable(problem)
        if response.status == 413:
            raise TooLarge(problem)
        raise Refused(problem)


def session() -> aiohttp.ClientSession:
    """One connection that is kept open."""
    return aiohttp.ClientSession()


def _answer(said: bytes, receipt: str) -> Answer:
    """The receipt counts; the body names the reasons."""
    told = _json(said)
    counts = dict(part.strip().partition("=")[::2] for part in receipt.split(";"))
    reasons = Counter(
        str(reject.get("reason") or reject.get("error"))
        for reject in told.get("rejected") or told.get("errors") or ()
        if isinstance(reject, dict)
    )
    unnamed = _number(counts.get("rejected")) - reasons.total()
    if unnamed > 0:
        reasons["not said"] += unnamed
    return Answer(accepted=_number(counts.get("records")), ignored=_number(counts.get("ignored")), rejected=reasons)


def _words(said: bytes) -> str:
    error = _json(said).get("error")
    told = error.get("message") if isinstance(error, dict) else None
    return str(told or "it does not say why")[:300]


def _json(said: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(said, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _asked(retry_after: str | None) -> float | None:
    asked_s = retry_after_s(retry_after, now=time.time())
    return None if asked_s is None else min(asked_s, LONGEST_HINT_S)
