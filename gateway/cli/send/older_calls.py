"""Counts what was sent and is older than the month that reports show by default."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from gateway.errors import BadPayload, Refusal
from gateway.normalise import any_format
from gateway.normalise.formats.engine.recognise import recognised
from gateway.normalise.formats.langfuse.merger import released_at_once
from gateway.normalise.options import Options

_NS: Final = 1_000_000_000


class OlderCalls:
    """Bodies that a gateway accepted: how many of their calls began before this month (UTC), and the first of them."""

    def __init__(self, format: str | None, now: float) -> None:
        self._format = format
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._month_ns = int(month.timestamp()) * _NS
        self._oldest_ns = self._month_ns
        self.calls = 0
        self.older = 0

    def add(self, body: bytes) -> None:
        """Count one body. One that only the gateway reads is left out."""
        try:
            work = any_format.normalise(self._format or recognised(body, how=""), body, options=Options())
            while True:
                next(work)
        except StopIteration as done:
            records = released_at_once(done.value).records
        except (BadPayload, Refusal):
            return
        starts = [record.start_time for record in records if record.start_time is not None]
        self.calls += len(starts)
        self.older += sum(start < self._month_ns for start in starts)
        self._oldest_ns = min([self._oldest_ns, *starts])

    @property
    def oldest(self) -> str | None:
        """The day of the first call that is older, such as 2025-12-17."""
        return datetime.fromtimestamp(self._oldest_ns / _NS, UTC).date().isoformat() if self.older else None

    @property
    def words(self) -> str:
        """Say what a report of this month leaves out, with the command that shows it; empty if it shows all."""
        if not self.older:
            return ""
        verb = "is" if self.older == 1 else "are"
        return f"{self.older:,} of {self.calls:,} {verb} older than this month: tollhouse report --from {self.oldest}"
