"""Sends request bodies to a gateway, retries temporary failures, and reads the responses."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from exporters.http.answers import retry_after_s
from exporters.pace import Backoff
from gateway.cli.send.request_bodies import UploadBody

if TYPE_CHECKING:
    import aiohttp

ATTEMPTS: Final = 8
# Seconds after which retries end if no server listens at the address. If the address has responded in this
# run, all ATTEMPTS are used.
UNHEARD_S: Final = 10.0
LONGEST_HINT_S: Final = 300.0
TIMEOUT_S: Final = 60.0
SLOWEST_BYTES_PER_S: Final = 64 * 1024
RECEIPT: Final = "Tollhouse-Receipt"
UNNAMED: Final = "unnamed reason"

_BACKOFF: Final = Backoff()
_RETRYABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_HOPELESS: Final = frozenset({401, 403, 404, 405, 415, 501})


class Undeliverable(Exception):
    """
    Raised if no body can be delivered: the key or the address is wrong, or the gateway stayed unavailable.
    """


class WrongKey(Undeliverable):
    """Raised if the key of an upload is missing or unknown, or lacks the scope for these records."""


class BodyRefused(Exception):
    """Raised if the gateway read the body of an upload and rejected it."""


class BodyTooLarge(BodyRefused):
    """Raised if the body of an upload is larger than the gateway accepts."""


class _RetryableFailure(Exception):
    """Raised for a failure of an upload that a retry may overcome."""

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class _NoServerListening(_RetryableFailure):
    """Raised if no server listens at the address."""


@dataclass
class UploadCounts:
    """Items that the gateway accepted, ignored and rejected, over all bodies."""

    accepted: int = 0
    ignored: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def add_answer(self, answer: UploadAnswer) -> None:
        self.accepted += answer.accepted
        self.ignored += answer.ignored
        self.rejected.update(answer.rejected)


class RejectedItem(NamedTuple):
    """A rejected item of a response. `item` is its index among the items that the gateway read, or None."""

    item: int | None
    reason: str
    message: str

    @property
    def explanation(self) -> str:
        return f"{self.reason}{f': {self.message}' if self.message else ''}"

    def position_in_file(self, body: UploadBody, *, may_item_become_several: bool) -> str:
        """
        Return the item's position in the file. If `may_item_become_several`, one sent item may appear as several items
        in the response.
        """
        if self.item is None or not may_item_become_several:
            return body.position_in_file(self.item)
        return f"{body.position_in_file(None)}, item {self.item + 1}"


@dataclass(frozen=True)
class UploadAnswer:
    """The counts of a response. If `unfolds`, one sent item may appear as several items in the response."""

    accepted: int
    ignored: int
    rejected: Counter[str]
    items: Sequence[RejectedItem] = ()
    unfolds: bool = False
    hint: str = ""


class UploadClient:
    """
    A client for one address and key. Does not follow redirects, because they would receive the key as well.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        key: str | None,
        *,
        notify: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Set up the client. `notify` is called with the reason and the wait before each retry."""
        self._was_heard = False
        self._session = session
        self._url = url
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": key} if key else {})
        self._notify = notify
        self._sleep = sleep

    async def send_until_answered(self, body: UploadBody) -> UploadAnswer:
        """
        Send a body until it is accepted.

        Raises BodyRefused if the gateway rejects this body for good, and Undeliverable if it can accept no
        body at all.
        """
        waited_s = 0.0
        # The key marks retries of this body, so the gateway counts items without an id once.
        headers = {**self._headers, "Idempotency-Key": uuid4().hex}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._post_body(body, headers)
            except _RetryableFailure as error:
                wait_s = _BACKOFF.delay_s(attempt, error.retry_after_s)
                waited_s += wait_s
                is_unheard = isinstance(error, _NoServerListening) and not self._was_heard
                self._was_heard |= not isinstance(error, _NoServerListening)
                if is_unheard and waited_s > UNHEARD_S:
                    raise Undeliverable(
                        f"{error}; check that Tollhouse is running there, or name another address with --to"
                    ) from error
                if attempt == ATTEMPTS:
                    raise Undeliverable(
                        f"{self._url} did not accept it in {ATTEMPTS} attempts ({error})"
                    ) from error
                self._notify(f"{error}; trying again in {wait_s:.0f} s ({attempt + 1} of {ATTEMPTS})")
                await self._sleep(wait_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @property
    def _server_url(self) -> str:
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    async def _post_body(self, body: UploadBody, headers: Mapping[str, str]) -> UploadAnswer:
        import aiohttp  # late, because its import takes a third of the time of `--help`

        try:
            content = body.content
            async with self._session.post(
                self._url,
                data=io.BytesIO(content),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S + len(content) / SLOWEST_BYTES_PER_S),
            ) as response:
                content_of_answer = await response.read()
        except aiohttp.ClientSSLError as error:
            raise Undeliverable(str(error)) from error
        except aiohttp.ClientConnectorDNSError as error:
            raise _NoServerListening(f"the name of {self._server_url} cannot be resolved") from error
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.errno) if error.errno else type(error.os_error).__name__
            raise _NoServerListening(f"no server listens at {self._server_url} ({why})") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _RetryableFailure(str(error) or type(error).__name__) from error
        self._was_heard = True
        if 200 <= response.status < 300:
            if RECEIPT not in response.headers:
                raise Undeliverable(
                    f"{self._url} is not a Tollhouse gateway: its response {response.status} has no "
                    f"{RECEIPT} header"
                )
            return _parse_upload_answer(content_of_answer, response.headers[RECEIPT])
        problem = f"{response.status}: {_error_message(content_of_answer)}"
        if response.status in _RETRYABLE:
            raise _RetryableFailure(problem, _retry_after_s(response.headers.get("Retry-After")))
        if response.status < 400:
            raise Undeliverable(f"{response.status}: {self._url} redirects; use the address of the redirect")
        if response.status == 401 or _error_object(content_of_answer).get("type") == "missing_scope":
            raise WrongKey(problem)
        if response.status in _HOPELESS:
            raise Undeliverable(problem)
        if response.status == 413:
            raise BodyTooLarge(problem)
        raise BodyRefused(problem)


def new_http_session() -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession()


def _parse_upload_answer(body: bytes, counts_header: str) -> UploadAnswer:
    answer = _parse_json_object(body)
    counts = dict(part.strip().partition("=")[::2] for part in counts_header.split(";"))
    # the response for usage events states the result of each event, and how many were rejected
    stated = answer.get("events") or answer.get("rejected") or answer.get("errors") or ()
    items = [
        _parse_rejected_item(reject)
        for reject in stated
        if isinstance(reject, dict) and reject.get("status") != "accepted"
    ]
    reasons = Counter(item.reason for item in items)
    unnamed = _parse_count(counts.get("rejected")) - reasons.total()
    if unnamed > 0:
        reasons[UNNAMED] += unnamed
        items += [RejectedItem(None, UNNAMED, "")] * unnamed
    unfolds = "events" not in answer and _may_item_become_several(str(answer.get("format")))
    return UploadAnswer(
        accepted=_parse_count(counts.get("records")),
        ignored=_parse_count(counts.get("ignored")),
        rejected=reasons,
        items=items,
        unfolds=unfolds,
        hint=str(answer.get("hint") or ""),
    )


def _may_item_become_several(format_name: str) -> bool:
    # loaded late, because usage events need no formats
    from gateway.normalise.formats.engine.declaration import ItemFormat
    from gateway.normalise.formats.list import BY_NAME

    found = BY_NAME.get(format_name)
    return not isinstance(found, ItemFormat) or found.unwrap is not None


def _parse_rejected_item(reject: dict[str, Any]) -> RejectedItem:
    item = reject.get("item")
    error = reject.get("error")
    if isinstance(error, dict):
        reason, message = error.get("type"), error.get("message")
    else:
        reason, message = reject.get("reason") or error, reject.get("message")
    return RejectedItem(item if type(item) is int and item >= 0 else None, str(reason), str(message or ""))


def _error_message(body: bytes) -> str:
    return str(_error_object(body).get("message") or "no reason given")[:300]


def _error_object(body: bytes) -> dict[str, Any]:
    error = _parse_json_object(body).get("error")
    return error if isinstance(error, dict) else {}


def _parse_json_object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _parse_count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _retry_after_s(retry_after: str | None) -> float | None:
    asked_s = retry_after_s(retry_after, now=time.time())
    return None if asked_s is None else min(asked_s, LONGEST_HINT_S)
