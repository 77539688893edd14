"""
Memory for request bodies, shared fairly between keys.

While memory is free, one key may use all of `server.max_inflight_bytes`. Otherwise each key is entitled to an
equal share, at most half. If memory is short, uploads of keys above their share are cut off, the largest
excess first. A complete body is never cut off.

Small bodies may use a reserve when the general pool is full. A key may use at most as much of the reserve as
is free, so that other keys always find space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.core.errors import Refusal


class InflightBytePool:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.by_key: dict[str, int] = {}

    def bytes_of_key(self, key: str) -> int:
        return self.by_key.get(key, 0)

    def add_bytes(self, key: str, byte_count: int) -> None:
        """Count `byte_count` bytes of a key. A negative `byte_count` releases bytes."""
        self.held += byte_count
        key_bytes = self.by_key.get(key, 0) + byte_count
        if key_bytes:
            self.by_key[key] = key_bytes
        else:
            self.by_key.pop(key, None)


class InflightBytes:
    """
    The bytes of request bodies in progress. All may use the general pool, and small requests also the
    reserve.
    """

    def __init__(self, limit: int, *, reserve: int = 0, small: int = 0) -> None:
        """
        Create the pools, with `limit` and `reserve` in bytes. Requests of up to `small` bytes may use the
        reserve.
        """
        self.general = InflightBytePool(limit)
        self.reserve = InflightBytePool(reserve)
        self.small = small
        self.uploads: set[RequestByteReservation] = set()  # reservations of the bodies that are arriving

    @property
    def held_bytes(self) -> int:
        return self.general.held + self.reserve.held

    def new_share(self, key: str = "") -> RequestByteReservation:
        return RequestByteReservation(self, key)

    def find_pool_or_cut_uploads(
        self, reservation: RequestByteReservation, byte_count: int
    ) -> InflightBytePool | None:
        """
        Return the pool that has space for `byte_count` more bytes of a request, or None. Cuts off other keys' uploads
        if necessary.
        """
        general = self.general
        reserve = self.reserve
        total = reservation.held + byte_count
        added = byte_count if reservation.pool is general else total
        # A body may be larger than the pool if nothing else is in it, so that every max_body_bytes can be accepted.
        if general.held + added <= general.limit or general.held + byte_count == total:
            return general
        if total <= self.small:
            added = byte_count if reservation.pool is reserve else total
            if reserve.bytes_of_key(reservation.key) + added <= reserve.limit - reserve.held - added:
                return reserve
        return general if self._cut_uploads_for_room(reservation.key, added) else None

    def _cut_uploads_for_room(self, key: str, byte_count: int) -> bool:
        """
        Cut off uploads of keys above their fair share until `byte_count` bytes are free. Return False, and cut none
        off, if that would not be enough.
        """
        general = self.general
        entitled = general.limit // max(2, len(general.by_key.keys() | {key}))
        if general.bytes_of_key(key) + byte_count > entitled:
            return False
        short = general.held + byte_count - general.limit
        over = {
            other_key: key_bytes - entitled
            for other_key, key_bytes in general.by_key.items()
            if other_key != key
        }
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
            upload.cut_off(busy_refusal())
        return True

    def cut_uploads(self, reason: Refusal) -> None:
        for upload in list(self.uploads):
            upload.cut_off(reason)


class RequestByteReservation:
    """The bytes that one request holds in the pools. They are released with the answer."""

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

    def reserve_bytes(self, byte_count: int) -> None:
        """Reserve `byte_count` more bytes. Raises Refusal 503 if there is no space, or if the upload was cut off."""
        if self._cut:
            raise self._cut
        pool = self._inflight.find_pool_or_cut_uploads(self, byte_count)
        if pool is None:
            raise busy_refusal()
        if pool is not self.pool:
            self.pool.add_bytes(self.key, -self.held)
            pool.add_bytes(self.key, self.held)
            self.pool = pool
        pool.add_bytes(self.key, byte_count)
        self.held += byte_count

    def release_bytes(self, byte_count: int) -> None:
        self.pool.add_bytes(self.key, -byte_count)
        self.held -= byte_count

    @contextmanager
    def allow_cutoff_during_upload(self, end_upload: Callable[[], None]) -> Iterator[None]:
        """
        Let this request be cut off while its body arrives, during this block. Cutting it off releases its
        bytes and calls `end_upload`.
        """
        self._end_upload = end_upload
        self._inflight.uploads.add(self)
        try:
            yield
        finally:
            self._inflight.uploads.discard(self)

    def cut_off(self, reason: Refusal) -> None:
        """Release the bytes of an upload and end it. `raise_if_upload_was_cut_off` then raises the reason."""
        self._cut = reason
        self.release_bytes(self.held)
        self._end_upload()

    def raise_if_upload_was_cut_off(self) -> None:
        if self._cut:
            raise self._cut

    def __enter__(self) -> RequestByteReservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release_bytes(self.held)


def busy_refusal() -> Refusal:
    message = "Too many bytes are in flight (server.max_inflight_bytes). Send the request again shortly."
    return Refusal(503, "busy", message, retry_after_s=1)
