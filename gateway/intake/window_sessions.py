"""
Sessions that are in no record, kept over a restart: a window of Copilot Chat holds many conversations, its
calls name these, and its counters the window alone.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from gateway.intake.shadows import WINDOW_S, Shadows
from gateway.normalise.outcome import Window
from spool.clock import Clock
from spool.log.partial_reports import SESSIONS, PartialReport, PartialReports, PendingChange

MOST = 10_000

_log = logging.getLogger(__name__)


class WindowSessions:
    """Those of the last hour, longest unheard first."""

    def __init__(self, shadows: Shadows, clock: Clock) -> None:
        self._shadows = shadows
        self._clock = clock
        self._heard: OrderedDict[bytes, float] = OrderedDict()

    async def start(self, stored: PartialReports) -> None:
        """Note what was heard before the process ended."""
        damaged = 0
        for report in await stored.load():
            if not report.key.startswith(SESSIONS):
                continue
            self._heard[report.key] = report.at
            try:
                source, service, session = _windows.decode(report.body)
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged += 1
            else:
                self._shadows.note_session(source, service, session, at=report.at)
        if damaged:
            _log.error("%d sessions cannot be read", damaged, extra={"action": "window_sessions_damaged"})

    def note(self, windows: Iterable[Window]) -> PendingChange:
        """Calls came in of these; what the commit of the calls keeps and forgets of sessions."""
        now = self._clock.now()
        change = PendingChange()
        for window in sorted(windows, key=repr):
            self._shadows.note_session(*window)
            body = _encode(window)
            key = SESSIONS + blake2b(body, digest_size=16).digest()
            change.keep.append(PartialReport(key, now, body))
            self._heard[key] = now
            self._heard.move_to_end(key)
        while self._heard:
            key, at = next(iter(self._heard.items()))
            if now - at <= WINDOW_S and len(self._heard) <= MOST:
                break
            del self._heard[key]
            change.forget.append(key)
        reports = {report.key: report for report in change.keep if report.key in self._heard}
        change.keep = list(reports.values())
        return change


_encode = msgspec.msgpack.Encoder().encode
_windows = msgspec.msgpack.Decoder(Window)
