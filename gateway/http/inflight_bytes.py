"""
The memory of bodies, shared fairly: how many bytes the pending requests may hold, and whose upload ends for whom.

While there is room, a key may hold all of `server.max_inflight_bytes`. When a request finds none, each key is
entitled to an equal share, half of it at most: what still arrives for the key that holds the most over its
share is cut. A body that has arrived is never cut; it is answered and gives back what it holds. Small bodies
that find no room are held in a reserve, of which no key gets more than it leaves free: so there is room in it
for one key more, however many hold the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.service.errors import Refusal


class Pool:
    """Bytes held by key."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.by_key: dict[str, int] = {}

    def of(self, key: str) -> int:
        return self.by_key.get(key, 0)

    def count(self, key: str, n: int) -> None:
        """Hold `n` bytes more for a key, fewer if negative."""
        self.held += n
        held = self.by_key.get(key, 0) + n
        if held:
            self.by_key[key] = held
        else:
            self.by_key.pop(key, None)


class InflightBytes:
    """The bytes of all pending requests, in the general pool and in the reserve."""

    def __init__(self, limit: int, *, reserve: int = 0, small: int = 0) -> None:
        """A request that holds at most `small` bytes may hold them in the reserve."""
        self.general = Pool(limit)
        self.reserve = Pool(reserve)
        self.small = small
        self.uploads: set[Share] = set()  # bodies that have not arrived

    @property
    def held(self) -> int:
        return self.general.held + self.reserve.held

    def share(self, key: str = "") -> Share:
        return Share(self, key)

    def pool_for(self, share: Share, n: int) -> Pool | None:
        """The pool in which a share may hold `n` bytes more; None if there is no room, and none could be made."""
        general = self.general
        reserve = self.reserve
        total = share.held + n
        more = n if share.pool is general else total
        # A request that is alone may always use what max_body_bytes allows, or it could never pass.
        if general.held + more <= general.limit or general.held + n == total:
            return general
        if total <= self.small:
            more = n if share.pool is reserve else total
            if reserve.of(share.key) + more <= reserve.limit - reserve.held - more:
                return reserve
        return general if self._make_room(share.key, more) else None

    def _make_room(self, key: str, n: int) -> bool:
        """Cut uploads of keys over their share until `n` bytes fit; False, and nothing is cut, if they would not."""
        general = self.general
        entitled = general.limit // max(2, len(general.by_key.keys() | {key}))
        if general.of(key) + n > entitled:
            return False
        short = general.held + n - general.limit
        over = {other: held - entitled for other, held in general.by_key.items() if other != key}
        uploads = [upload for upload in self.uploads if upload.pool is general]
        uploads.sort(key=lambda upload: (over.get(upload.key, 0), upload.held), reverse=True)
        cut = []
        for upload in uploads:
            if short > 0 and over.get(upload.key, 0) > 0:
                cut.append(upload)
                short -= upload.held
                over[upload.key] -= upload.held
        if short > 0:
            return False
        for upload in cut:
            upload.cut(busy())
        return True

    def cut_uploads(self, reason: Refusal) -> None:
        """End every upload that has not arrived, all for the same reason."""
        for upload in list(self.uploads):
            upload.cut(reason)


class Share:
    """One request's share of the bytes in flight, given back when the request is answered."""

    def __init__(self, inflight: InflightBytes, key: str) -> None:
        self._inflight = inflight
        self._cut: Refusal | None = None
        self._end_upload: Callable[[], None] = lambda: None
        self.pool = inflight.general
        self.key = key
        self.held = 0

    @property
    def is_large(self) -> bool:
        return self.held > self._inflight.small

    def take(self, n: int) -> None:
        """Hold `n` bytes more. Refusal 503 when there is no room for them, or when the upload was cut."""
        if self._cut:
            raise self._cut
        pool = self._inflight.pool_for(self, n)
        if pool is None:
            raise busy()
        if pool is not self.pool:
            self.pool.count(self.key, -self.held)
            pool.count(self.key, self.held)
            self.pool = pool
        pool.count(self.key, n)
        self.held += n

    def give(self, n: int) -> None:
        """Give back `n` bytes of those held."""
        self.pool.count(self.key, -n)
        self.held -= n

    @contextmanager
    def upload(self, end: Callable[[], None]) -> Iterator[None]:
        """
        Mark the body as arriving in this block: the upload may be cut; `end` is called then, and nothing is
        held any more.
        """
        self._end_upload = end
        self._inflight.uploads.add(self)
        try:
            yield
        finally:
            self._inflight.uploads.discard(self)

    def cut(self, reason: Refusal) -> None:
        """End the upload at once; `check` raises the reason."""
        self._cut = reason
        self.give(self.held)
        self._end_upload()

    def check(self) -> None:
        """Raise the refusal with which the upload was cut, if it was."""
        if self._cut:
            raise self._cut

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *exc: object) -> None:
        self.give(self.held)


def busy() -> Refusal:
    message = "Too many bytes are in flight (server.max_inflight_bytes); send it again shortly."
    return Refusal(503, "busy", message, retry_after_s=1)
