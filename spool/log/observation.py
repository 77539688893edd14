"""Notifies an observer of a commit that is durable: whatever the observer does with it, the submission was kept."""

from __future__ import annotations

import logging

from spool.log.protocols import Observer
from spool.log.values import Commit

_log = logging.getLogger(__name__)


def notify(observer: Observer, commit: Commit) -> None:
    """An error of the observer is logged and not raised: a sender that heard of it would send the records again."""
    try:
        observer.committed(commit)
    except Exception:  # noqa: BLE001 - the observer's code, after the commit
        _log.exception("an observer of the log failed", extra={"action": "observer_failed"})
