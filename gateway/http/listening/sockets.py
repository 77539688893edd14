"""Listening sockets from a service manager or from this server's predecessor."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from gateway.configuration.server import ServerSettings
from gateway.configuration.values import ConfigError

HTTP, OPERATOR, METRICS = "http", "operator", "metrics"
# socket name -> its setting in [server]
_SETTINGS = {HTTP: "listen", OPERATOR: "operator_listen", METRICS: "metrics_listen"}
_FIRST = 3  # number of the first file descriptor that a service manager passes


class ListeningSockets:
    """
    Inherited listening sockets by name. Empty if the process opens its own sockets.

    While no process accepts, new connections wait in the sockets.
    """

    def __init__(self, sockets: Mapping[str, socket.socket]) -> None:
        self._sockets = dict(sockets)

    def __bool__(self) -> bool:
        return bool(self._sockets)

    @classmethod
    def from_service_manager(cls, environ: MutableMapping[str, str] = os.environ) -> ListeningSockets:
        """
        Return the sockets that systemd passes in LISTEN_FDS, and remove that variable from the environment. A
        single socket serves HTTP unless its name is `operator`. Raises ConfigError for an unknown name or
        kind of socket.
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
            shown_names = names or "(none)"
            expected_names = (
                " and ".join(f"FileDescriptorName={name}" for name in _SETTINGS)
                + "; gRPC opens its own socket"
            )
            raise ConfigError([f"LISTEN_FDNAMES is {shown_names}; name the sockets with {expected_names}"])
        return cls(
            {
                name: _check_socket(name, number)
                for name, number in zip(socket_names, descriptors, strict=True)
            }
        )

    def find(self, name: str) -> socket.socket | None:
        inherited = self._sockets.get(name)
        return None if inherited is None else inherited.dup()

    def with_socket_addresses(self, server: ServerSettings) -> ServerSettings:
        addresses: dict[str, str] = {
            _SETTINGS[name]: socket_address(listening) for name, listening in self._sockets.items()
        }
        return replace(server, **addresses)  # type: ignore[arg-type]

    def close(self) -> None:
        for listening in self._sockets.values():
            listening.close()
        self._sockets.clear()


def socket_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_socket(name: str, descriptor: int) -> socket.socket:
    try:
        inherited = socket.socket(fileno=descriptor)
        is_usable = (
            inherited.family in (socket.AF_INET, socket.AF_INET6) and inherited.type == socket.SOCK_STREAM
        )
        is_usable = is_usable and bool(inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as error:
        raise ConfigError([f"the socket {name!r} of LISTEN_FDS cannot be used: {error.strerror}"]) from error
    if not is_usable:
        raise ConfigError(
            [f"the socket {name!r} of LISTEN_FDS is not a listening TCP socket; use ListenStream=PORT"]
        )
    inherited.set_inheritable(False)
    return inherited
