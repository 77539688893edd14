"""Searches in large texts: in pieces, with the result of one search over the whole text."""

from __future__ import annotations

import re

import pytest

from spool import bounded_reading
from spool.bounded_reading import check_json
from spool.errors import Invalid

WIDE = [b"\\u00e4", b"\\uD83D", b"\\udb", "ä".encode(), "\U0001f600".encode()]


@pytest.mark.parametrize("text", WIDE)
def test_a_wide_character_across_two_pieces_is_found(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reading, "_PIECE", 16)
    for pattern in (bounded_reading._WIDE, bounded_reading._WIDEST):
        for before in range(40):
            content = b"x" * before + text + b"y" * 20
            assert bounded_reading._contains(pattern, content) == bool(pattern.search(content)), before
        assert not bounded_reading._contains(pattern, b"x" * 100)


def test_no_search_reads_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search holds the interpreter, so that all other threads wait, also the event loop."""
    spans = []

    class Noted:
        def search(self, content: bytes, begin: int = 0, end: int = 10**9) -> re.Match[bytes] | None:
            spans.append(min(end, len(content)) - begin)
            return None

    for name in ("_WIDE", "_WIDEST"):
        monkeypatch.setattr(bounded_reading, name, Noted())
    check_json("a", b'["' + b"x" * 2_000_000 + b'"]')
    assert max(spans) <= bounded_reading._PIECE + bounded_reading._MATCH_BYTES
    assert sum(spans) >= 2 * 2_000_000


def test_wide_texts_take_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same length is accepted in ASCII and refused with one wide character."""
    monkeypatch.setattr(bounded_reading, "MAX_DECODED", 4 * 1024 * 1024)
    size = 1024 * 1024
    check_json("a", b"x" * size)
    with pytest.raises(Invalid, match="a would take more than 4 MiB"):
        check_json("a", b"x" * size + "\U0001f600".encode())
