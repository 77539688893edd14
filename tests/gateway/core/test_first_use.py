"""Imports at the first use, while a process lacks descriptors."""

from __future__ import annotations

import errno
import json

import pytest

from gateway.core import first_use


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "too many open files"), ModuleNotFoundError("no module")]
)
async def test_an_import_waits_for_a_descriptor(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An import waits for a file descriptor. Without the wait, a command was answered with 500 if the server had no
    descriptor for the modules of its first request.
    """
    failures = [error] * (first_use.TRIES - 1)

    def import_module(name: str) -> object:
        if failures:
            raise failures.pop()
        return json

    monkeypatch.setattr(first_use, "import_module", import_module)
    monkeypatch.setattr(first_use, "PAUSE_S", 0.0)
    monkeypatch.setattr(first_use, "_imported", set())
    await first_use.import_in_thread("json")
    assert failures == []
    failures[:] = [error] * first_use.TRIES
    with pytest.raises(type(error)):
        await first_use.import_in_thread("another")
