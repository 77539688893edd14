"""
Loops of background tasks. An item that fails costs only itself: the next item runs, the state names the failed
item, and the process lives.

`repeat` is the only endless loop of a task, and `for_each_item` is its only loop over items. Both catch every
error of the work, but no cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from spool.clock import Clock, SystemClock
from spool.errors import SpoolError, TotalsIncomplete

T = TypeVar("T")

_log = logging.getLogger(__name__)

ENOUGH: Final = object()  # returned by the last turn of a loop
RETRY_S = 60.0  # seconds until a failed turn is repeated, in loops whose turns wait for an event
# seconds until a failed item is tried again, unless the storage failed; its work may be expensive
ITEM_RETRY_S = 900.0


async def repeat(
    turn: Callable[[], Awaitable[object]],
    *,
    every_s: float,
    failed: str,
    action: str,
    retry_s: float | None = None,
    incomplete_s: float | None = None,
) -> None:
    """
    Call `turn` again and again until cancelled, `every_s` seconds after its last call. A turn that returns ENOUGH
    ends the loop. After an error, log `failed` with `action`, and wait `retry_s` seconds, or `incomplete_s` while
    the totals are counted again.
    """
    while True:
        wait_s = every_s
        try:
            result = await turn()
        except Exception as error:  # noqa: BLE001 - the supervised loop
            log_failure(failed, error, action=action)
            is_incomplete = isinstance(error, TotalsIncomplete) and incomplete_s is not None
            rest_s = incomplete_s if is_incomplete else retry_s
            wait_s = every_s if rest_s is None else rest_s
        else:
            if result is ENOUGH:
                return
        await asyncio.sleep(wait_s)


async def for_each_item(
    items: Iterable[T],
    work: Callable[[T], Awaitable[object]],
    store_failure: Callable[[T, Exception], Awaitable[object]],
) -> int:
    """
    Do the work of each item, one after the other, and pass the error of a failed item to `store_failure`. Return
    the number of failed items. Raises TotalsIncomplete, because then no item has failed: the whole turn waits.
    """
    failed = 0
    for item in items:
        try:
            await work(item)
        except TotalsIncomplete:
            raise
        except Exception as error:  # noqa: BLE001 - an item that fails costs only itself
            failed += 1
            await _try_to_store(store_failure, item, error)
    return failed


async def _try_to_store(
    store_failure: Callable[[T, Exception], Awaitable[object]], item: T, error: Exception
) -> None:
    try:
        await store_failure(item, error)
    except Exception as second:  # noqa: BLE001 - the storage may have failed, so that nothing can be stored
        log_failure(
            "an item failed, and its failure could not be stored", second, action="failure_not_stored"
        )


def log_failure(failed: str, error: Exception, *, action: str, **fields: object) -> None:
    """Log a failure. The text of an unexpected error is left out, because it may quote a sender."""
    extra = {"action": action, **fields}
    if isinstance(error, TotalsIncomplete):
        _log.info("%s: %s", failed, error, extra=extra)
    elif isinstance(error, SpoolError | OSError):
        _log.warning("%s: %s", failed, error, extra=extra)
    else:
        _log.error("%s: an internal error", failed, exc_info=error, extra=extra)


def failure_logger(
    failed: str, *, action: str, name: Callable[[Any], str] = str
) -> Callable[[Any, Exception], Awaitable[None]]:
    """
    Return a `store_failure` that only logs, for items that are tried again in each turn. `name` names an item.
    """

    async def log_failed_item(item: Any, error: Exception) -> None:
        log_failure(failed, error, action=action, item=name(item))

    return log_failed_item


def failure_reason(error: Exception) -> str:
    """Return the reason that a state shows."""
    if isinstance(error, SpoolError | OSError):
        return str(error)
    names = [type(error).__name__, *getattr(error, "__notes__", ())]  # a note names the part that failed
    return f"an internal error; see the log: {', '.join(names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedItem:
    """An item that failed at its last attempt. Times are epoch seconds."""

    task: str
    item: str
    reason: str
    at: float
    next_at: float


class FailedItems:
    """
    The failed items of background tasks whose items have no stored state. They are kept in memory, because a start
    tries every item again.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._failed: dict[tuple[str, str], FailedItem] = {}
        self._waiting_until: dict[tuple[str, str], float] = {}  # monotonic times

    def all(self) -> list[FailedItem]:
        return list(self._failed.values())

    async def work_on(
        self,
        task: str,
        items: Mapping[str, T],
        work: Callable[[T], Awaitable[object]],
        store_failure: Callable[[str, Exception], Awaitable[object]] | None = None,
    ) -> None:
        """
        Do the work of each item of a task, except those that failed and wait for their next attempt. Call this with
        all items of the task, because the failures of other items are forgotten. `store_failure` stores a failure
        in the state of the item.
        """
        self._forget_removed_items(task, items)

        async def work_on_item(name: str) -> None:
            await work(items[name])
            self._forget((task, name))

        async def note_failure(name: str, error: Exception) -> None:
            self._note((task, name), error)
            if store_failure is not None:
                await store_failure(name, error)

        due = [name for name in items if not self._is_waiting((task, name))]
        await for_each_item(due, work_on_item, note_failure)

    def _is_waiting(self, key: tuple[str, str]) -> bool:
        return self._clock.monotonic() < self._waiting_until.get(key, 0.0)

    def _note(self, key: tuple[str, str], error: Exception) -> None:
        task, item = key
        retry_s = 0.0 if isinstance(error, SpoolError | OSError) else ITEM_RETRY_S
        now = self._clock.now()
        self._waiting_until[key] = self._clock.monotonic() + retry_s
        self._failed[key] = FailedItem(
            task=task, item=item, reason=failure_reason(error), at=now, next_at=now + retry_s
        )
        log_failure(f"{task}: {item} failed", error, action="item_failed", task=task, item=item)

    def _forget(self, key: tuple[str, str]) -> None:
        self._failed.pop(key, None)
        self._waiting_until.pop(key, None)

    def _forget_removed_items(self, task: str, items: Mapping[str, object]) -> None:
        for key in list(self._failed):
            if key[0] == task and key[1] not in items:
                self._forget(key)
