"""Log lines: JSON with stable fields, without any received content."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from gateway.monitoring import logs
from tests.hostile_names import HOSTILE_NAMES, UNPRINTABLE
from tests.moved_clock import MovedClock


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    logs.start_logging("info", stream)
    yield stream
    root.handlers[:], level = before
    root.setLevel(level)


def test_a_line_is_json_with_its_fields(lines: io.StringIO) -> None:
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
    """The text of an exception may quote a prompt, so it is not logged."""

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


@pytest.mark.proves(
    "A team's or a model's name adds mail headers, mentions people in a chat, or controls a terminal"
)
@pytest.mark.parametrize("name", [*HOSTILE_NAMES, pytest.param("half a \ud83d character", id="half")])
def test_a_name_neither_ends_a_line_nor_moves_a_cursor(name: str) -> None:
    """A hostile name cannot break a log line, and a terminal shows it as plain text."""
    # The test calls the formatter without a logger, because pytest would capture the name and xdist cannot
    # send a lone surrogate.
    written = logs.JsonFormatter().format(
        logging.makeLogRecord({"msg": "refused %s", "args": (name,), "action": name})
    )
    assert not UNPRINTABLE.search(written)
    line = json.loads(written)
    assert line["message"] == f"refused {name}"
    assert line["action"] == name


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, pytest.param("half a \ud83d character", id="half")])
def test_a_line_on_a_terminal_is_text(name: str) -> None:
    """A terminal shows time, level, message and fields on one line. A hostile name cannot break it."""
    record = logging.makeLogRecord(
        {
            "msg": "refused a request",
            "levelno": 30,
            "levelname": "WARNING",
            "action": "refused",
            "status": 401,
        }
    )
    plain = logs.TerminalFormatter().format(record)
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning: refused a request \(status=401\)", plain)
    hostile = logging.makeLogRecord({"msg": "refused %s", "args": (name,), "key": name, "levelno": 20})
    assert not UNPRINTABLE.search(logs.TerminalFormatter().format(hostile))


@pytest.mark.parametrize(("is_terminal", "start"), [(True, r"\d\d:"), (False, r"\{")])
def test_only_a_terminal_gets_text(is_terminal: bool, start: str) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
    logs.start_logging("info", stream)
    try:
        logging.getLogger("x").info("ready")
    finally:
        root.handlers[:], root.level = before
    assert re.match(start, stream.getvalue())


def test_configured_level_suppresses_debug_lines(lines: io.StringIO) -> None:
    logging.getLogger("x").debug("too much")
    assert "" == lines.getvalue()


def test_lines_about_one_address_are_bounded_and_counted() -> None:
    """
    Refusals of one kind from one address are rate-limited. The next line states the number of suppressed lines.
    """
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream, clock = io.StringIO(), MovedClock()
    logs.start_logging("info", stream, lines_per_minute=6, clock=clock)

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
