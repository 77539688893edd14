"""What the code costs a reader stays where it is: lengths of lines and files, first words of docstrings, names."""

from __future__ import annotations

from functools import cache

from tests.figures import LONG_FILE, Figures, all_paths
from tests.sources import source

LONG_LINES = 7  # of 1,000
TOKENS_A_LINE = 9.0  # with the types, of which docs/decisions/0047 tells
WITHOUT_TYPES = 8.0
# Longer ones: each holds one matter that would read worse in two. A file that gets shorter leaves the list.
LONG_FILES = {
    "gateway/authentication/access.py",
    "gateway/configuration/sections.py",
    "gateway/normalise/formats/langfuse/merger.py",
    "gateway/normalise/otlp/decoding/json_decoder.py",
    "gateway/normalise/otlp/semconv.py",
    "gateway/normalise/otlp/spans/reader.py",
    "spool/ledger/ledger.py",
    "spool/log/duplicates.py",
    "spool/postgres/deliveries/deliveries.py",
    "spool/sqlite/log/log.py",
    "spool/turns/fair_turns.py",
}
NEARLY = LONG_FILE - 20  # so that a file at the edge need not leave and come back


@cache
def files() -> list[Figures]:
    """Each file is listed once for all rules."""
    return [source(path).figures for path in all_paths()]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """No docstring of a function begins with What, Of, Who, Whether and their like."""
    assert {} == {str(file.path): file.clauses for file in files() if file.clauses}


def test_few_lines_are_long() -> None:
    """Of 1,000 lines at most 7 have more than 110 columns."""
    long_lines = sum(file.long_lines for file in files())
    assert long_lines <= LONG_LINES * sum(file.lines for file in files()) / 1000


def test_lines_say_one_thing() -> None:
    """A code line has few tokens on the average: `python -m tests.figures --files 40` names the worst files."""
    tokens = sum(file.tokens for file in files())
    types = sum(file.type_tokens for file in files())
    lines = sum(file.code_lines for file in files())
    assert tokens <= TOKENS_A_LINE * lines
    assert tokens - types <= WITHOUT_TYPES * lines


def test_few_files_are_long() -> None:
    """A file over 400 lines holds a second noun; those that are named here are longer, and no others."""
    long = {str(file.path) for file in files() if file.lines > LONG_FILE}
    may_be = {str(file.path) for file in files() if file.lines > NEARLY}
    assert set() == long - LONG_FILES
    assert set() == LONG_FILES - may_be


def test_no_module_is_named_rows() -> None:
    """The protocol of an engine is `..._rows.py`, and a row of a table says of which."""
    assert [] == [str(file.path) for file in files() if file.path.name == "rows.py"]
