"""
Open connections, bounded and shared by whose they are: a flood of them costs its own owner the
connections that idle.

A connection is its address's until a key was admitted on it, then that key's. Beyond the limit, the
connection that idles longest is closed for a new one. It is one of the owner that has the most; when all of
these have a pending request, the new one is refused.
"""

from __future__ import annotations

import resource
import sys
from typing import Protocol

from gateway.service.configuration.sections import ServerSettings

DESCRIPTORS = 65_536  # what a start asks for: more than the default limits need
SHARE = 0.8  # of the descriptors, for connections; the rest is for files, routes and operators,
OTHERS = 96  # which need this many at least
LEAST = 8


class OpenConnection(Protocol):
    """A connection as this table sees it."""

    place: str  # whose it is: an address (all of an IPv6 network), or a key

    @property
    def is_idle(self) -> bool:
        """True if none of its requests is being handled."""
        ...

    def end(self) -> None:
        """Close it at once."""
        ...


class Connections:
    """The connections of one listener, by owner, the longest silent first. `setting` limits them."""

    def __init__(self, limit: int, setting: str = "server.max_connections") -> None:
        self.limit = limit
        self.setting = setting
        self.count = 0
        self._by_place: dict[str, dict[OpenConnection, None]] = {}

    def add(self, connection: OpenConnection) -> bool:
        """Count a new connection; False when it must be refused."""
        if self.count >= self.limit and not self._make_room(connection.place):
            return False
        self._by_place.setdefault(connection.place, {})[connection] = None
        self.count += 1
        return True

    def give(self, connection: OpenConnection, key: str) -> None:
        """A key was admitted on the connection: it counts for that from now on."""
        place = f"key {key}"
        if connection.place != place and connection in self._by_place.get(connection.place, ()):
            self.remove(connection)
            connection.place = place
            self._by_place.setdefault(place, {})[connection] = None
            self.count += 1

    def touch(self, connection: OpenConnection) -> None:
        """The connection is not silent: it becomes the last of its owner to be closed."""
        of_place = self._by_place.get(connection.place, {})
        if connection in of_place:
            del of_place[connection]
            of_place[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Forget a connection; one that was refused or forgotten before is ignored."""
        of_place = self._by_place.get(connection.place, {})
        if connection in of_place:
            del of_place[connection]
            self.count -= 1
            if not of_place:
                del self._by_place[connection.place]

    def _make_room(self, newcomer: str) -> bool:
        counts = {place: len(of_place) for place, of_place in self._by_place.items()}
        counts[newcomer] = counts.get(newcomer, 0) + 1
        most = max(counts, key=counts.__getitem__)
        of_place = self._by_place.get(most, {})
        idle = next((connection for connection in of_place if connection.is_idle), None)
        if idle is None:
            return False
        self.remove(idle)
        idle.end()
        return True


def raise_descriptor_limit() -> None:
    """Let this process open as many files as it may, up to DESCRIPTORS: the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit(server: ServerSettings) -> int:
    """
    Return how many connections HTTP and gRPC may have each, by `server.max_connections` and
    the process's descriptors.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = sys.maxsize if soft == resource.RLIM_INFINITY else soft
    room = max(LEAST, min(int(SHARE * descriptors), descriptors - OTHERS))
    return min(server.max_connections, room) // (2 if server.grpc_listen else 1)


def operator_connections(server: ServerSettings) -> Connections:
    """Make the connection count of a listener for operators alone."""
    limit = min(server.max_operator_connections, connection_limit(server))
    return Connections(limit, "server.max_operator_connections")
