"""
The e-mail address of the user who runs a command on this machine. The audit list names people by address.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Iterator

from gateway.configuration.sections import Config
from spool.errors import Invalid
from spool.registry.operators import check_email

AS_ENV = "TOLLHOUSE_AS"
REASON_ENV = "TOLLHOUSE_REASON"  # environment variable with the reason for looking at figures of a person


def local_address(config: Config) -> str:
    """
    Return TOLLHOUSE_AS, else the address that `[operators.local]` assigns to the user, else USER@HOSTNAME.
    """
    named = os.environ.get(AS_ENV, "").strip()
    if named:
        return named
    for candidate in _possible_addresses(config):
        try:
            return check_email(candidate)
        # the name of the user or of the machine cannot be part of an email address, so try the next one
        except Invalid:
            continue
    raise AssertionError("unreachable: the last possible address is always a valid e-mail address")


def system_user() -> str | None:
    """Return the user who runs this process, or None in a container whose user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # Windows has no table of users to look in
        return None


def _possible_addresses(config: Config) -> Iterator[str]:
    user = system_user()
    nameless = "user"
    if sys.platform != "win32":
        nameless = f"uid{os.getuid()}"
    yield config.operators.local.get(user or nameless, "")
    yield f"{user or nameless}@{socket.gethostname()}"
    yield f"{nameless}@localhost"
