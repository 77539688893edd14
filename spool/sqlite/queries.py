"""Every statement of the log, named, with a sentence about what it is for."""

from __future__ import annotations

# One running counter of a topic.
TERM = "SELECT n FROM books WHERE topic = ? AND term = ?"

# The lowest number kept in a topic.
OLDEST_NUMBER = "SELECT min(first) FROM entries WHERE topic = ?"
