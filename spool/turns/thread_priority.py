"""
Threads and processes that compute large answers and read large bodies leave the processor to those that
answer.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Final

STEPS_LOWER: Final = 5  # of nice: beside a thread of usual priority about a quarter of the processor

_log = logging.getLogger(__name__)


def lower_priority() -> None:
    """
    Lower the priority of the thread that calls.

    On Linux each thread has its own. Elsewhere, and where it is refused, all keep theirs: answers are slower
    beside large questions.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    try:
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + STEPS_LOWER)
    except OSError as error:
        _log.debug("the priority of a thread stays: %s", error, extra={"action": "priority_kept"})
