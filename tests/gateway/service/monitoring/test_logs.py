"""Log lines: JSON, stable fields, and nothing of what was sent."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gateway.service.monitoring import logs
from tests.hostile_names import HOSTILE_NAMES, UNPRINTABLE
from tests.moved_clock import MovedClock


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    root.handlers[:], level = before
    root.setLevel(level)


def test_a_line_is_json_with_its_fields(lines: io.StringIO) -> None:
    """A sentence and the fields beside it."""
    logging.getLogger("gateway.http").warning(
        "refused a request", extra={"action": "request_refused", "status": 401}
    )
    line = json.loads(lines.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert {
        "level": "warning",
        "logger": "gateway.http",
        "message": "refused a request",
        "action": "request_refused",
        "status": 401,
    } == line


def test_an_exception_is_its_type_and_place(lines: io.StringIO) -> None:
    """The text of an exception may quote a prompt, so it stays out."""

    def decode() -> None:
        raise ValueError("my secret prompt")

    try:
        decode()
    except ValueError:
        logging.getLogger("x").exception("a door failed")
    line = json.loads(lines.getvalue())
    assert "ValueError" == line["error"]
    assert line["where"][-1].endswith(" decode")
    assert "secret" not in lines.getvalue()


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, pytest.param("half a \ud83d character", id="half")])
def test_a_name_neither_ends_a_line_nor_moves_a_cursor(name: str) -> None:
    """Whatever others call a thing, a line of the log stays one line, and a terminal shows it as text."""
    # Not by a logger: pytest would capture the name, and xdist cannot send half a character.
    written = logs.JsonFormatter().format(
        logging.makeLogRecord({"msg": "refused %s", "args": (name,), "action": name})
    )
    assert not UNPRINTABLE.search(written)
    line = json.loads(written)
    assert line["message"] == f"refused {name}"
    assert line["action"] == name


def test_the_level_comes_from_the_configuration(lines: io.StringIO) -> None:
    """What is below the level is not written."""
    logging.getLogger("x").debug("too much")
    assert "" == lines.getvalue()


def test_lines_about_one_address_are_bounded_and_counted() -> None:
    """Refusals of one kind and address are written up to a rate; the next line says how many were left out."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream, clock = io.StringIO(), MovedClock()
    logs.configure("info", stream, lines_per_minute=6, clock=clock)

    def refuse(address: str, n: int) -> None:
        extra = {"action": "request_refused", "status": 401, "address": address}
        for _ in range(n):
            logging.getLogger("gateway.http").warning("refused a request", extra=extra)

    try:
        refuse("192.0.2.1", 1000)
        refuse("192.0.2.2", 1)
        assert 7 == stream.getvalue().count("\n")
        clock.move(20)
        refuse("192.0.2.1", 1)
        assert 994 == json.loads(stream.getvalue().splitlines()[-1])["left_out"]
        for _ in range(1000):
            logging.getLogger("asyncio").error("socket.accept() out of system resource")
            logging.getLogger("spool").error("the disk is full")
        assert stream.getvalue().count("out of system") == 6
        assert stream.getvalue().count("the disk is full") == 1000
    finally:
        root.handlers[:], level = before
        root.setLevel(level)
