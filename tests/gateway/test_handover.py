"""
A server that hands its sockets over may end at any moment: whoever follows it goes on, or says what to do.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from gateway.handover import FILE, HandOver, Predecessor

pytestmark = pytest.mark.asyncio


async def test_a_server_that_ended_after_its_answer_is_followed(tmp_path: Path) -> None:
    """The sockets are there, and nobody has to be told to stop."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = HandOver(tmp_path, lambda: {"http": listening.fileno()}, grpc="")
        before.start()
        predecessor = await asyncio.to_thread(Predecessor.ask, tmp_path)
        assert predecessor is not None
        await before.stop()
        predecessor.go()
        found = predecessor.sockets.find("http")
        assert found is not None
        with found:
            assert listening.getsockname() == found.getsockname()
        predecessor.sockets.close()
    assert not before.asked.is_set()


async def test_a_server_that_ends_before_its_answer_is_no_server(tmp_path: Path) -> None:
    """Its socket was still there: the error says that starting again is all that there is to do."""
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(os.fspath(tmp_path / FILE))
        ending.listen()
        asking = asyncio.create_task(asyncio.to_thread(Predecessor.ask, tmp_path))
        accepted, _ = await asyncio.to_thread(ending.accept)
        with accepted:
            assert b"take" == await asyncio.to_thread(accepted.recv, 16)
        with pytest.raises(OSError, match="start again"):
            await asking
