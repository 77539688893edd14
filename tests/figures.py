"""
Readability figures of the code: file sizes, line lengths and tokens per line (`python -m tests.figures`).

`python -m tests.figures --files 40` lists the 40 files with the most tokens per line instead, and `--subjects` what
each subject weighs: its modules, statements and tokens, which ARCHITECTURE.md limits.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import quantiles

from tests.sources import contents

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "exporters", "spool")
COLUMNS = 110
LONG_FILE = 400
FULL_FOLDER = 20
# Words that start a relative clause. A docstring should start with a verb or a noun phrase instead.
CLAUSES = frozenset({"What", "Of", "Those", "By", "As", "Who", "Where", "How", "Whether"})
_TRIPLE = "|".join(rf"{quote}(?:[^\\]|\\[\s\S])*?{quote}" for quote in ('"{3}', "'{3}"))
_SINGLE = "|".join(rf"{quote}(?:[^\\\n{quote}]|\\[\s\S])*{quote}" for quote in "\"'")
_STRING = rf"(?i:[bfru]|[bf]r|r[bf])?(?:{_TRIPLE}|{_SINGLE})"
# These are the tokens of the module tokenize, in a third of its time. Comments and spaces are in no group.
_TOKEN = re.compile(rf"#[^\n]*|\\\n|\s+|({_STRING}|{tokenize.Number}|\w+|{tokenize.Special})")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[int, int]  # a place in a source file: line and column


@dataclass(frozen=True, kw_only=True)
class Weight:
    path: Path
    statements: int  # without docstrings
    tokens: int
    code_lines: int


@dataclass(frozen=True, kw_only=True)
class Figures(Weight):
    lines: int
    long_lines: int
    type_tokens: int  # number of tokens in annotations
    functions: Sequence[int]  # number of lines of each function in the file
    classes: int
    docstrings: int  # number of functions with a docstring
    clauses: Sequence[str]  # functions with a docstring that begins with one of CLAUSES

    @property
    def tokens_a_line(self) -> float:
        return self.tokens / max(1, self.code_lines)


def figures(path: Path) -> Figures:
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    lines = text.splitlines()
    functions = [node for node in nodes if isinstance(node, Function)]
    docstrings = [(function.name, ast.get_docstring(function)) for function in functions]
    return Figures(
        **vars(weight(path)),
        lines=len(lines),
        long_lines=sum(len(line) > COLUMNS for line in lines),
        type_tokens=_type_tokens(path, text, nodes),
        functions=[(function.end_lineno or 0) - function.lineno + 1 for function in functions],
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        docstrings=sum(text is not None for _, text in docstrings),
        clauses=[name for name, text in docstrings if text and _first_word(text) in CLAUSES],
    )


@cache
def weight(path: Path) -> Weight:
    """Count the code of a file without its docstrings. Lines of code are those in which a token begins."""
    found = contents(path)
    tokens_of_lines = Counter(_lines_of_tokens(path.read_text()))
    code = tokens_of_lines.keys() - found.idle_lines
    return Weight(
        path=path.relative_to(ROOT),
        statements=found.statements,
        tokens=sum(tokens_of_lines[line] for line in code),
        code_lines=len(code),
    )


def all_figures() -> list[Figures]:
    return [figures(path) for path in all_paths()]


def all_weights() -> list[Weight]:
    return [weight(path) for path in all_paths()]


def all_paths() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def folders(files: Sequence[Figures]) -> Counter[Path]:
    return Counter(file.path.parent for file in files if file.path.name != "__init__.py")


def subjects(files: Sequence[Weight], lent: Collection[str] = ()) -> dict[str, list[int]]:
    """
    Return modules, statements and tokens of each subject: a package's folder, or its modules outside of folders.
    Folders of `lent` are subjects of their own.
    """
    weights: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for file in files:
        package, folder = file.path.parts[0], file.path.parts[1]
        name = f"{package}/{folder}" if len(file.path.parts) > 2 else package
        name = next((each for each in lent if file.path.is_relative_to(each)), name)
        for index, weight in enumerate((1, file.statements, file.tokens)):
            weights[name][index] += weight
    return weights


def _first_word(text: str) -> str:
    return text.split(maxsplit=1)[0].rstrip(",.:;")


def _annotations(nodes: Sequence[ast.AST]) -> list[tuple[Place, Place]]:
    """Return the start and end of each annotation, in order."""
    expressions: list[ast.expr | None] = []
    for node in nodes:
        if isinstance(node, ast.arg | ast.AnnAssign):
            expressions.append(node.annotation)
        elif isinstance(node, Function):
            expressions.append(node.returns)
    places = (each for each in expressions if each is not None)
    return sorted(
        ((each.lineno, each.col_offset), (each.end_lineno or 0, each.end_col_offset or 0)) for each in places
    )


def _places_of_tokens(text: str) -> list[int]:
    return [found.start() for found in _TOKEN.finditer(text) if found.group(1)]


def _places_of_lines(text: str) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in text.split("\n"))]


def _lines_of_tokens(text: str) -> Iterator[int]:
    """Yield the line of each token, in order."""
    lines, line = _places_of_lines(text), 1
    for place in _places_of_tokens(text):
        while lines[line] <= place:
            line += 1
        yield line


def _type_tokens(path: Path, text: str, nodes: Sequence[ast.AST]) -> int:
    """Count the tokens of types with their sign."""
    lines, begins = _places_of_lines(text), _places_of_tokens(text)
    idle = contents(path).idle_lines

    def among(since: Place, until: Place) -> int:
        first, last = (lines[line - 1] + column for line, column in (since, until))
        return bisect_left(begins, last) - bisect_left(begins, first)

    annotations = _annotations(nodes)
    return sum(among(*place) for place in annotations if place[0][0] not in idle) + len(annotations)


def rows(files: Sequence[Figures]) -> Iterator[tuple[str, str, str]]:
    """Yield rows of the table: name, figure, and recommended value."""
    sizes = [file.lines for file in files if file.lines]
    functions = [lines for file in files for lines in file.functions]
    lines, code_lines = sum(sizes), sum(file.code_lines for file in files)
    docstrings = sum(file.docstrings for file in files)
    clauses = sum(len(file.clauses) for file in files)
    folder, fullest = folders(files).most_common(1)[0]
    long_lines = 1000 * sum(file.long_lines for file in files) / lines
    tokens = sum(file.tokens for file in files) / code_lines
    without_types = tokens - sum(file.type_tokens for file in files) / code_lines
    yield "code lines without tests", f"{code_lines:,}", ""
    counts = (len(files), len(functions), sum(file.classes for file in files))
    yield "modules; functions; classes", "; ".join(f"{n:,}" for n in counts), ""
    yield "lines of a file, median / p90 / max", _spread(sizes), "keep"
    yield f"files over {LONG_FILE} lines", str(sum(size > LONG_FILE for size in sizes)), "fewer"
    yield "lines of a function, median / p90 / max", _spread(functions), "keep"
    yield f"lines over {COLUMNS} columns per 1,000", f"{long_lines:.1f}", "<= 7"
    yield "tokens a code line", f"{tokens:.2f}", "<= 8"
    yield "tokens a code line, without types", f"{without_types:.2f}", "<= 8"
    yield "docstrings that begin with a clause", f"{clauses} of {docstrings:,}", "0"
    yield "modules of the fullest folder", f"{fullest} ({folder})", f"<= {FULL_FOLDER}"


def _spread(numbers: Sequence[int]) -> str:
    tenths = quantiles(numbers, n=10)
    return f"{tenths[4]:.0f} / {tenths[8]:.0f} / {max(numbers)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Figures of the code without its tests.")
    parser.add_argument("--files", type=int, metavar="N", help="list N files with the most tokens a line")
    parser.add_argument("--subjects", action="store_true", help="list what each subject weighs")
    options = parser.parse_args()
    wanted = options.files
    if options.subjects:
        weights = subjects(all_weights())
        weights["together"] = [sum(column) for column in zip(*weights.values(), strict=True)]
        for name, (modules, statements, tokens) in weights.items():
            print(f"| `{name}` | {modules:,} | {statements:,} | {tokens:,} |")
    elif wanted:
        for file in sorted(all_figures(), key=lambda file: file.tokens_a_line, reverse=True)[:wanted]:
            print(f"{file.tokens_a_line:6.2f} {file.code_lines:5d}  {file.path}")
    else:
        for name, now, wanted_figure in rows(all_figures()):
            print(f"{name:42s} {now:28s} {wanted_figure}")
