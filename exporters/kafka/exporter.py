"""
Brings the deliveries of a route into a topic, each once for whoever reads committed messages alone.

A delivery is one transaction, and how far the route has come is a message of the same transaction. So after a
crash, a lost answer or in another process the question whether a delivery is there has one answer: what that
message says. The brokers let one sender go on under an id, and end what the one before had in hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from exporters.errors import Misconfigured
from exporters.exporter import KeepMark, keep_or_compare
from exporters.kafka.brokers import Brokers
from exporters.kafka.messages import TopicMessage, TopicProgress, digest_of, messages_of, progress_key
from exporters.turns import TURN
from spool.deliveries.protocols import Landings
from spool.deliveries.rules import LAKE_MARK
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry


class KafkaExporter:
    in_flight = 1  # progress is one number

    def __init__(self, brokers: Brokers, landings: Landings, *, max_records: int) -> None:
        self.max_records = max_records
        self._brokers = brokers
        self._landings = landings
        self._edition = ""  # under which the transactions are; empty while the brokers are closed
        self._there: TopicProgress | None = None  # the newest delivery that was brought in

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        """Keep the mark of a delivery, then bring it in, if it is not there."""
        editions = await self._landings.editions(delivery.route, delivery.first)
        messages = await _messages(entries, delivery.route, editions[0])
        progress = TopicProgress(delivery.first, delivery.last, digest_of(messages))
        await keep_or_compare(delivery, f"{LAKE_MARK}kafka=1;digest={progress.digest}", keep_mark)
        try:
            if self._edition != editions[0]:
                await self._open(delivery.route, editions)
            if self._is_missing(progress):
                await self._brokers.bring(messages, progress, edition=editions[0], route=delivery.route)
                self._there = progress
        except BaseException:  # nothing is known of the transaction in hand
            await self.close()
            raise
        sent = len(messages)
        return Settlement(delivered=sent, damaged=delivery.count - sent)

    async def close(self) -> None:
        self._edition = ""
        await self._brokers.close()

    async def _open(self, route: str, editions: Sequence[str]) -> None:
        """Begin anew, and learn what is there, also from before the data was restored."""
        await self._brokers.close()
        keys = [progress_key(edition, route) for edition in editions]
        found = await self._brokers.open(f"tollhouse.{editions[0]}.{route}", keys)
        there = [found[key] for key in keys if key in found]
        self._there = max(there, key=lambda each: each.last, default=None)
        self._edition = editions[0]

    def _is_missing(self, wanted: TopicProgress) -> bool:
        """True if a delivery is still to be brought in. Misconfigured if others have its numbers."""
        there = self._there
        if there is None or there.last < wanted.first:
            return True
        if there == wanted:
            return False
        raise Misconfigured(
            f"the topic has the numbers up to {there.last} already, from before this data was restored, or from a "
            "copy of it: name another topic, or settle what is there by hand (docs/lake.md)",
            answered=False,
        )


async def _messages(entries: AsyncIterator[Entry], route: str, edition: str) -> list[TopicMessage]:
    """Encode in short turns."""
    messages: list[TopicMessage] = []
    async for entry in entries:
        for part in entry.parts(TURN):
            messages += messages_of(part, route=route, edition=edition)
            await asyncio.sleep(0)
    return messages
