"""
Open connections, shared fairly between owners. A flood only closes idle connections of its own sender.

A connection belongs to its network address, then to the key admitted on it. At the limit, a new connection
closes the longest idle one of the owner with the most. If all connections of that owner have a pending
request, the new one is refused.
"""

from __future__ import annotations

import sys
from typing import Protocol

from gateway.configuration.server import ServerSettings

if sys.platform != "win32":
    import resource

# requested at the start; the default limits need fewer
DESCRIPTORS = 65_536
SHARE = 0.8  # share of descriptors for connections; files, routes and operators use the rest
OTHERS = 96  # descriptors that are always left for files, routes and operators
LEAST = 8


class OpenConnection(Protocol):
    place: str  # a network address (a network for IPv6) or a key

    @property
    def is_idle(self) -> bool: ...

    def end(self) -> None: ...


class OpenConnections:
    """The open connections of a listener by owner, the longest idle connection first."""

    def __init__(self, limit: int, setting: str = "server.max_connections") -> None:
        self.limit = limit
        self.setting = setting
        self.count = 0
        self._by_place: dict[str, dict[OpenConnection, None]] = {}

    def add(self, connection: OpenConnection) -> bool:
        if self.count >= self.limit and not self._close_idle_for_room(connection.place):
            return False
        self._by_place.setdefault(connection.place, {})[connection] = None
        self.count += 1
        return True

    def assign_key(self, connection: OpenConnection, key: str) -> None:
        owner = f"key {key}"
        if connection.place != owner and connection in self._by_place.get(connection.place, ()):
            self.remove(connection)
            connection.place = owner
            self._by_place.setdefault(owner, {})[connection] = None
            self.count += 1

    def mark_active(self, connection: OpenConnection) -> None:
        """Mark a connection as active, so that it is closed last among its owner's connections."""
        of_place = self._by_place.get(connection.place, {})
        if connection in of_place:
            del of_place[connection]
            of_place[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        of_place = self._by_place.get(connection.place, {})
        if connection in of_place:
            del of_place[connection]
            self.count -= 1
            if not of_place:
                del self._by_place[connection.place]

    def _close_idle_for_room(self, newcomer: str) -> bool:
        counts = {owner: len(connections) for owner, connections in self._by_place.items()}
        counts[newcomer] = counts.get(newcomer, 0) + 1
        busiest_place = max(counts, key=counts.__getitem__)
        connections = self._by_place.get(busiest_place, {})
        idle = next((connection for connection in connections if connection.is_idle), None)
        if idle is None:
            return False
        self.remove(idle)
        idle.end()
        return True


def raise_descriptor_limit() -> None:
    """Raise the process's soft limit for open files, usually 1,024, to DESCRIPTORS or to the hard limit."""
    if sys.platform != "win32":  # Windows has no such limit
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        new_limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
        if soft != resource.RLIM_INFINITY and soft < new_limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def connection_limit(server: ServerSettings) -> int:
    """
    Return the limit of connections for HTTP, and equally for gRPC, by `server.max_connections` and the limit
    for open files.
    """
    descriptors = _descriptor_limit()
    room = max(LEAST, min(int(SHARE * descriptors), descriptors - OTHERS))
    return min(server.max_connections, room) // (2 if server.grpc_listen else 1)


def _descriptor_limit() -> int:
    if sys.platform != "win32":
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return soft
    return sys.maxsize


def operator_connections(server: ServerSettings) -> OpenConnections:
    limit = min(server.max_operator_connections, connection_limit(server))
    return OpenConnections(limit, "server.max_operator_connections")
