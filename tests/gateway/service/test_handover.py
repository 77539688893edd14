"""Handover of sockets to a new server, if the old server may end at any moment."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from aiohttp import web

from gateway.core.paths import socket_path
from gateway.operations.requests.socket import OperatorSocket
from gateway.service.handover import FILE, ListenerHandover, Predecessor


async def test_a_server_that_ended_after_its_answer_is_followed(tmp_path: Path) -> None:
    """
    The old server hands over its sockets and ends. Its successor has the sockets, and no server remains
    that must stop.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = ListenerHandover(tmp_path, lambda: {"http": listening.fileno()}, grpc="")
        before.start()
        predecessor = await asyncio.to_thread(Predecessor.request_sockets, tmp_path)
        assert predecessor is not None
        await before.stop()
        predecessor.let_server_stop()
        found = predecessor.sockets.find("http")
        assert found is not None
        with found:
            assert listening.getsockname() == found.getsockname()
        predecessor.sockets.close()
    assert not before.asked.is_set()


async def test_a_server_that_ends_before_its_answer_is_no_server(tmp_path: Path) -> None:
    """
    The old server ends before it answers, but its socket file still exists. The error says to start again.
    """
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(os.fspath(tmp_path / FILE))
        ending.listen()
        asking = asyncio.create_task(asyncio.to_thread(Predecessor.request_sockets, tmp_path))
        accepted, _ = await asyncio.to_thread(ending.accept)
        with accepted:
            assert b"take" == await asyncio.to_thread(accepted.recv, 16)
        with pytest.raises(OSError, match="start Tollhouse again"):
            await asking


async def test_who_stops_late_leaves_the_sockets_of_its_successor(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """
    With shared storage, a successor may start before its predecessor has stopped. The late predecessor leaves
    the successor's sockets in place.
    """
    # in this directory, the socket's path is longer than the system allows
    deep = tmp_path_factory.mktemp("d" * 100)
    for directory in (tmp_path, deep):
        hand_overs = [ListenerHandover(directory, dict, grpc="") for _ in range(2)]
        operators = [OperatorSocket(directory, web.Application()) for _ in range(2)]
        for hand_over, operator in zip(hand_overs, operators, strict=True):
            hand_over.start()
            await operator.start()
        await hand_overs[0].stop()
        await operators[0].stop()
        predecessor = await asyncio.to_thread(Predecessor.request_sockets, directory)
        assert predecessor is not None
        await asyncio.to_thread(predecessor.let_server_stop)
        with socket.socket(socket.AF_UNIX) as command:
            await asyncio.to_thread(command.connect, os.fspath(socket_path(directory)))
        await hand_overs[1].stop()
        await operators[1].stop()
        assert [] == list(directory.iterdir())
