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
        (100_001, (), "ada"),  # an account of a directory
        (0, (), "ada"),  # root by hand, such as in a container
        (1000, ("INVOCATION_ID", "MANAGERPID"), "ada"),  # a service of the person
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
