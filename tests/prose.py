"""
Count pattern words in docstrings, comments, messages and documents, by room (`python -m tests.prose`), and function
names that do not say what the function does.

The patterns are words that readers had to read twice. The counts are a report: a low one is no proof of a clear text.
The report begins with the words of the documents by room, with and without marks such as `|`.
`python -m tests.prose --draw 20 --seed 7` prints 20 random pieces of each kind, to be judged by a reader.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]
MIN_WORDS = 4
PATTERNS = {
    "opens with what or who": r"^(?:What|Who|Whoever|Whatever|Whose)\b(?!.*\?)",
    "tell": r"\b(?:tells?|told|untold|telling)\b",
    "stand, lie, is there": r"\b(?:stands?|stood|lies|lie|(?:is|are) there)\b",
    "ask": r"\b(?:asks?|asked|asking)\b",
    "bring, come, go, leave": r"\b(?:brings?|brought|comes?|came|goes|went|gone|(?:is|are) over|leaves)\b",
    "take": r"\b(?:takes?|taken|took)\b",
    "mend, dear, anew, a most": r"\b(?:mend\w*|dear|dearer|dearest|anew|by lot|a most)\b",
    "so many, so long": r"\bso (?:many|long|much|often|far)\b",
    "of which, whose": r"\b(?:of|by|for|in|with|from|to) (?:which|whom)\b|\bwhose\b",
    "private terms": r"\b(?:parked|books|orphaned|dead letters?)\b",
    "too, alone": r", too\b|\balone\b",
    "beside, behind": r"\b(?:beside|besides|behind)\b",
    "semicolon": r";",
}
NAME_PATTERNS = {
    "function named by a participle": r"_*(?!need|seed|speed|feed|embed|exceed|open|listen|when|then)[a-z]+(?:ed|en)",
    "function named work": r"_*work",
    "old word in a test's name": (
        r"test_(?:.*_)?(?:told|untold|tells?|asked|asks?|stands?|lies|brought|comes|goes|gone|kept|taken|takes?|mend\w*|"
        r"anew|beside|behind|parked|books|dear)(?:_.*)?"
    ),
}


class Piece(NamedTuple):
    kind: str
    path: str
    line: int
    text: str

    @property
    def room(self) -> str:
        folders = self.path.split("/")[:-1]
        return "/".join(folders[:2]) or self.path


def pieces() -> Iterator[Piece]:
    """Yield each docstring, comment, message and paragraph of the tracked files, tests without messages."""
    for path in _tracked("*.py", "*.md"):
        text = (ROOT / path).read_text()
        found = _of_python(path, text) if path.endswith(".py") else _of_markdown(path, text)
        yield from (piece for piece in found if len(piece.text.split()) >= MIN_WORDS)


def _tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def _of_python(path: str, text: str) -> Iterator[Piece]:
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if words := ast.get_docstring(node):
            docstrings.add(id(node.body[0].value))  # type: ignore[attr-defined]
            yield Piece("docstring", path, node.body[0].lineno, words)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Piece("comment", path, token.start[0], token.string.lstrip("# "))
    if path.startswith("tests/"):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        value = node.value
        if _is_prose(value):
            yield Piece("message", path, node.lineno, value)


def _is_prose(value: object) -> TypeGuard[str]:
    return (
        isinstance(value, str)
        and re.search(r"[a-z]{2,} [a-z]{2,} ", value) is not None
        and re.search(r"[A-Z]{5}|[<>{}|=]", value) is None
    )


def _of_markdown(path: str, text: str) -> Iterator[Piece]:
    line = 1
    for paragraph in re.split(r"\n(?=\n|[-*|] )", text):
        if not re.match(r"\s*(?:#|```|\||<| {4})", paragraph):
            yield Piece("document", path, line, paragraph.strip())
        line += paragraph.count("\n") + 1


def document_words() -> Iterator[str]:
    """Yield the words of the documents by room, first as `wc -w` counts them, then without bare punctuation."""
    by_room: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path in _tracked("*.md"):
        parts = path.split("/")
        if parts[0] not in ("tests", "native", "deploy", ".github"):
            room = "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) == 2 else "root"
            words = (ROOT / path).read_text().split()
            by_room[room].update(
                all=len(words), real=sum(re.search(r"\w", word) is not None for word in words)
            )
    by_room["all but docs/reference"] = sum(
        (counts for room, counts in by_room.items() if room != "docs/reference"), Counter()
    )
    for room, counts in sorted(by_room.items()):
        yield f"{room:36} {counts['all']:7,} words  {counts['real']:7,} without bare punctuation"


def report() -> Iterator[str]:
    yield from document_words()
    found = list(pieces())
    by_room: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for piece in found:
        by_room[piece.room].update({"pieces": 1})
        for name, pattern in PATTERNS.items():
            by_room[piece.room][name] += len(re.findall(pattern, piece.text))
    total = sum(by_room.values(), Counter())
    for room, counts in sorted(by_room.items()):
        hits = sum(counts.values()) - counts["pieces"]
        yield f"{room:36} {counts['pieces']:6,} pieces {hits:6,} pattern words"
    yield from (f"{name:36} {total[name]:6,}" for name in ("pieces", *PATTERNS))
    names = list(function_names())
    for title, pattern in NAME_PATTERNS.items():
        yield f"{title:36} {sum(re.fullmatch(pattern, name) is not None for name in names):6,}"


def function_names() -> Iterator[str]:
    """Yield the name of each function of the tracked Python files."""
    for path in _tracked("*.py"):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name


def drawn(number: int, seed: int) -> Iterator[str]:
    by_kind: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces():
        by_kind[piece.kind].append(piece)
    chance = random.Random(seed)
    for kind, all_pieces in sorted(by_kind.items()):
        for piece in chance.sample(all_pieces, min(number, len(all_pieces))):
            yield f"[{kind}] {piece.path}:{piece.line}\n    {' '.join(piece.text.split())}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--draw", type=int, metavar="N", help="print N random pieces of each kind")
    parser.add_argument("--seed", type=int, default=1, help="seed of --draw; default: 1")
    arguments = parser.parse_args()
    for text in drawn(arguments.draw, arguments.seed) if arguments.draw else report():
        print(text)
