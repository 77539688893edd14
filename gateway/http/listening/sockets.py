"""Listening sockets that were opened before this process: by a service manager, or by the server that it follows."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from gateway.service.configuration.sections import ConfigError, ServerSettings

HTTP, OPERATOR, METRICS = "http", "operator", "metrics"
_SETTINGS = {HTTP: "listen", OPERATOR: "operator_listen", METRICS: "metrics_listen"}  # of [server]
_FIRST = 3  # where a service manager begins


class ListeningSockets:
    """By name; empty in a process that opens its own. Connections wait in them while nobody accepts."""

    def __init__(self, sockets: Mapping[str, socket.socket]) -> None:
        self._sockets = dict(sockets)

    def __bool__(self) -> bool:
        return bool(self._sockets)

    @classmethod
    def of_service_manager(cls, environ: MutableMapping[str, str] = os.environ) -> ListeningSockets:
        """
        Take the sockets of LISTEN_FDS and remove them from the environment. A single one serves HTTP,
        whatever its name.

        ConfigError for a name or a kind of socket that Tollhouse cannot use.
        """
        count, pid, names = (environ.pop(f"LISTEN_{word}", "") for word in ("FDS", "PID", "FDNAMES"))
        if not count or pid != str(os.getpid()):
            return cls({})
        descriptors = range(_FIRST, _FIRST + int(count))
        socket_names = names.split(":") if names else []
        if len(descriptors) == 1 and socket_names != [OPERATOR]:
            socket_names = [HTTP]
        if (
            len(socket_names) != len(descriptors)
            or len(set(socket_names)) != len(socket_names)
            or not set(socket_names) <= set(_SETTINGS)
        ):
            shown = names or "(none)"
            wanted = (
                " and ".join(f"FileDescriptorName={name}" for name in _SETTINGS)
                + "; gRPC opens its own socket"
            )
            raise ConfigError([f"LISTEN_FDNAMES is {shown}: name the sockets by {wanted}"])
        return cls(
            {
                name: _check_socket(name, number)
                for name, number in zip(socket_names, descriptors, strict=True)
            }
        )

    def find(self, name: str) -> socket.socket | None:
        """A descriptor of its own for the socket; None if there is none of that name."""
        found = self._sockets.get(name)
        return None if found is None else found.dup()

    def named_in(self, server: ServerSettings) -> ServerSettings:
        """The settings with the addresses of the sockets, which count."""
        addresses: dict[str, str] = {
            _SETTINGS[name]: address_of(each) for name, each in self._sockets.items()
        }
        return replace(server, **addresses)  # type: ignore[arg-type]

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()


def address_of(listening: socket.socket) -> str:
    """HOST:PORT, an IPv6 host in brackets."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_socket(name: str, descriptor: int) -> socket.socket:
    try:
        found = socket.socket(fileno=descriptor)
        is_usable = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
        is_usable = is_usable and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as error:
        raise ConfigError([f"the socket {name!r} of LISTEN_FDS cannot be used: {error.strerror}"]) from error
    if not is_usable:
        raise ConfigError(
            [f"the socket {name!r} of LISTEN_FDS is no TCP socket that listens: use ListenStream=PORT"]
        )
    found.set_inheritable(False)
    return found
