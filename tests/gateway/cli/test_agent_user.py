"""The user that an agent names: the person whose process it is, and never the account of a service."""

from __future__ import annotations

import getpass
import os

import pytest

from gateway.cli import agent_run

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="accounts of POSIX systems")


@pytest.mark.parametrize(
    ("uid", "variables", "expected"),
    [
        (1000, (), "ada"),
        (100_001, (), "ada"),  # the user id of an account of a directory service
        (0, (), "ada"),  # somebody runs the command as root by hand, such as in a container
        # a service that the person runs, which systemd starts for the user
        (1000, ("INVOCATION_ID", "MANAGERPID"), "ada"),
        (0, ("INVOCATION_ID",), None),
        (999, (), None),
        (61_184, (), None),
        (65_519, ("INVOCATION_ID",), None),
    ],
)
def test_whose_agent_it_is(
    monkeypatch: pytest.MonkeyPatch, uid: int, variables: tuple[str, ...], expected: str | None
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(os, "getuid", lambda: uid)
    for name in ("INVOCATION_ID", "MANAGERPID"):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, "1")
    assert expected == agent_run.process_user_unless_service()
