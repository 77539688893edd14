"""Which commits have ids that are in no stored run: what is kept of these ids beside the runs goes with a fold."""

from __future__ import annotations

from collections import deque


class UnfoldedCommits:
    """Commits by ascending numbers, and how many ids of each are among the newest, in the same order."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque()
        self.last = 0  # the number that was noted last

    def note(self, number: int, count: int) -> None:
        """A commit made so many ids known."""
        self.last = number
        if count:
            self._counts.append((number, count))

    def first_left(self, taken: int) -> int | None:
        """The oldest commit of which ids are left once so many are in runs; None when there is none."""
        for number, count in self._counts:
            if count > taken:
                return number
            taken -= count
        return None

    def folded(self, taken: int) -> None:
        """The oldest of the newest ids are in runs now."""
        while taken:
            number, count = self._counts.popleft()
            if count > taken:
                self._counts.appendleft((number, count - taken))
            taken -= min(count, taken)
