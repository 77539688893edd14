"""Every `tollhouse ...` command in documents, the console and messages exists and has the quoted options."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
from click.testing import CliRunner

from gateway.cli import main
from spool.clock import SystemClock
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    if not {"decisions", "reference"} & set(path.relative_to(ROOT).parts)
)
REPORTS = [path for path in DOCUMENTS if "tollhouse report" in path.read_text()]
FENCE = re.compile(r"^( *)(```+|~~~+)[^\n]*\n(.*?)^\1\2", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(.*)$", re.MULTILINE)
INLINE = re.compile(r"`(tollhouse [^`]+)`|<code>(tollhouse [^<]+)</code>")
CALL = re.compile(r"(?<![\w./@-])tollhouse ((?:[^|;&()#>\n'\"`]|'[^']*'|\"[^\"]*\"|\\\n)*)")
VIEWS = ("Search",)  # names of the views in quoted reports
DEFINED = "User:Defined:"  # prefix of dimensions that the page itself defines
TAGS = re.compile(r"^tags = \[(.*)\]|`(\w+)` to `\[ledger\] tags`", re.MULTILINE)
SOURCES = sorted(
    path
    for package in ("gateway", "spool", "exporters", "deploy")
    for path in (ROOT / package).rglob("*")
    if path.suffix in {".py", ".mjs", ".toml", ".service", ".yaml", ".sh"} and INLINE.search(path.read_text())
)


def quoted(text: str) -> Iterator[str]:
    """Yield the rest of each `tollhouse` command in a document's code blocks and inline code."""
    for found in FENCE.finditer(text):
        yield from (each[1] for each in CALL.finditer(found[3]) if known(each[1]))
    prose = FENCE.sub("", text)
    for found in INDENTED.finditer(prose):
        yield from (each[1] for each in CALL.finditer(found[1]) if known(each[1]))
    yield from inline(prose)


def inline(text: str) -> Iterator[str]:
    for one, other in INLINE.findall(text):
        line = " ".join((one or other).split()).removeprefix("tollhouse ")
        yield re.split(r" (?:[|;&>#]|&&)", line)[0]


def known(call: str) -> bool:
    """
    Return False if the word after `tollhouse` is no command, for example after the name of an image or a user.
    """
    words = call.split()
    return bool(words) and main.get_command(click.Context(main), words[0]) is not None


def spelled(call: str) -> Iterator[list[str]]:
    """
    Yield the command's words, once for each choice in `a|b`. Brackets, dots and placeholders are removed.
    """
    plain = re.sub(r"\$\{[^}]*\}|\{[^}]*\}", "X", re.sub(r"[][]|\.\.\.|…|\\\n", " ", call))
    words = [word.rstrip(",") if word.endswith(",") else word for word in shlex.split(plain)]
    yield from (list(each) for each in product(*(word.split("|") for word in words)))


def problem(words: list[str]) -> str | None:
    """Return why the command line refuses these words, or None if it accepts them."""
    command: click.Command = main
    context = click.Context(main, resilient_parsing=True)
    rest = [*words]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        if rest[0].isupper():  # a word in capitals, such as COMMAND, is a placeholder
            return None
        found = command.get_command(context, rest[0])
        if found is None:
            return f"{command.name} has no command {rest[0]}"
        command, rest = found, rest[1:]
    if rest and rest[-1].startswith("--"):  # the text names an option without its value
        rest = rest[:-1] if _takes_value(command, rest[-1]) else rest
    try:
        given, left, _ = command.make_parser(click.Context(command)).parse_args(rest)
    except click.UsageError as error:
        return error.format_message()
    if left and not isinstance(command, click.Group):
        return f"{command.name} takes no {' '.join(left)}"
    return next(_wrong_values(command, given), None)


def _takes_value(command: click.Command, name: str) -> bool:
    options = [each for each in command.params if isinstance(each, click.Option) and name in each.opts]
    return any(not each.is_flag and not each.count for each in options)


def texts(path: Path) -> Iterator[str]:
    """Yield a module's strings with X for inserted values, or the whole text of any other file."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    nodes = list(ast.walk(ast.parse(path.read_text())))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value
        elif isinstance(node, ast.JoinedStr) and id(node) not in parts:
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values)


def _wrong_values(command: click.Command, given: Mapping[str, object]) -> Iterator[str]:
    """Yield why the command refuses values of its options. Placeholders in capitals are left out."""
    context = click.Context(command)
    for each in command.params:
        if isinstance(each.type, click.File | click.Path):
            continue
        for value in _values(given.get(each.name or "")):
            try:
                each.type.convert(value, each, context)
            except click.UsageError as error:
                yield error.format_message()


def _values(value: object) -> list[str]:
    many = value if isinstance(value, list | tuple) else [value]
    return [each for each in many if isinstance(each, str) and not each.isupper()]


def wrong(calls: Iterator[str]) -> list[str]:
    return [
        f"tollhouse {call.strip()}: {why}"
        for call in calls
        for words in spelled(call)
        if (why := problem(words)) is not None
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_quote_real_commands(path: Path) -> None:
    assert [] == wrong(quoted(path.read_text()))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty data directory with the views that documents name."""
    directory = tmp_path_factory.mktemp("data")
    asyncio.run(_create(directory))
    for view in VIEWS:
        stated = ["--name", view, "--principal", "model", "--where", "team=search"]
        done = CliRunner().invoke(main, ["views", "create", "--data", str(directory), *stated])
        assert 0 == done.exit_code, done.output
    return directory


async def _create(directory: Path) -> None:
    spool = await open_spool(directory, settings=SpoolSettings(), clock=SystemClock())
    await spool.close()


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_quoted_reports_are_answered(path: Path, empty: Path) -> None:
    """Each `tollhouse report ...` is answered if [ledger] tags has only the tags that its page adds."""
    text = path.read_text()
    tags = re.findall(r"\w+", " ".join(one or other for one, other in TAGS.findall(text)))
    config = f'data_dir = "{empty}"\n[ledger]\ntags = {json.dumps(["service", *tags])}\n'
    for words in {tuple(each) for call in quoted(text) for each in spelled(call)}:
        if words[0] != "report" or words[-1].startswith("--") or DEFINED in " ".join(words):
            continue
        asked = [VIEWS[0] if each == "NAME" else each for each in words]
        assert "" == _refusal(tuple(_without_data(asked)), config), words


@cache
def _refusal(words: Sequence[str], config: str) -> str:
    """Return what a command that fails prints, or "". Many pages quote the same commands."""
    with TemporaryDirectory() as directory:
        file = Path(directory, "tollhouse.toml")
        file.write_text(config)
        done = CliRunner().invoke(main, [*words, "--config", str(file)])
    return done.output or "no reason" if done.exit_code else ""


def _without_data(words: list[str]) -> list[str]:
    at = words.index("--data") if "--data" in words else len(words)
    return words[:at] + words[at + 2 :]


def test_messages_and_samples_quote_real_commands() -> None:
    found = {
        str(path.relative_to(ROOT)): [each for text in texts(path) for each in wrong(inline(text))]
        for path in SOURCES
    }
    assert {} == {name: problems for name, problems in found.items() if problems}


@pytest.mark.parametrize(
    "text",
    ["`tollhouse kays list`", "`tollhouse keys list --colour red`", "```sh\ntollhouse report --form csv\n```",
     "    tollhouse keys show one two", "`tollhouse keys list|mend`", "`tollhouse report --range last_moon`",
     "`tollhouse spool replay --since noon --route x`"],
)  # fmt: skip
def test_a_command_that_is_none_is_found(text: str) -> None:
    """
    The check finds a wrong word, option or value and a surplus argument, in inline code, a block or indented code.
    """
    assert 1 == len(wrong(quoted(text)))


def test_placeholders_are_no_problem() -> None:
    """The check accepts placeholders in capitals, dots, brackets, and other programs on the same line."""
    text = (
        "`tollhouse keys delete NAME --confirm NAME`\n```sh\nsudo -u tollhouse tollhouse check | less\n```\n"
    )
    assert [] == wrong(quoted(text + "`tollhouse keys list [--limit N] ...` and `docker run tollhouse`"))
