"""Handlers answer from the calls that a person may see; each use of the sums of all calls states its reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

GATEWAY = Path(__file__).parent.parent / "gateway"
MARK = "# whole: "
LINES_ABOVE = 3  # a reason stands above its line, or above the call whose argument the line is
# files that only hand the ledger on, or whose class limits it
EXEMPT = {"money/costs/reader.py", "operations/requests/requests.py", "mcp/tool.py", "mcp/operator.py"}
USES = {
    "mcp/tools/plan_costs.py": 1,
    "money/comparison/comparing.py": 1,
    "money/costs/answer.py": 6,
    "money/costs/earlier_period.py": 1,
    "money/focus/counted.py": 2,
    "operations/bills/contracts.py": 1,
    "operations/bills/plans.py": 1,
    "operations/money/costs/focus.py": 1,
    "operations/money/costs/report.py": 1,
    "operations/money/costs/what_if.py": 1,
    "operations/money/work.py": 1,
    "operations/people/privacy.py": 3,
    "operations/records/accounting.py": 1,
}
USE = re.compile(r"\.whole(_ledger)?\b")
READERS = ("reader", "reads", "cost_reader")


def uses_of_all_calls(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that read the ledger of all calls from a request or from a reader of costs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and is_ledger(node):
            yield node.end_lineno or node.lineno


def is_ledger(node: ast.Attribute) -> bool:
    if node.attr == "whole":
        return ast.unparse(node.value).rpartition(".")[2] in READERS
    return node.attr == "whole_ledger"


def test_each_use_of_all_calls_is_listed_with_its_reason() -> None:
    """
    Search and lists once read names of all calls and limited them later, which revealed hidden names. Use
    `request.ledger`, or `request.definitions` for dimensions. Otherwise state the reason above, and list the use here.
    """
    found, without_reason = Counter[str](), list[str]()
    for file in sorted(GATEWAY.rglob("*.py")):
        name, text = file.relative_to(GATEWAY).as_posix(), file.read_text()
        lines = text.splitlines()
        is_read = USE.search(text) and name not in EXEMPT
        for number in uses_of_all_calls(ast.parse(text)) if is_read else ():
            found[name] += 1
            above = lines[max(0, number - 1 - LINES_ABOVE) : number]
            if not any(MARK in line for line in above):
                without_reason.append(f"{name}:{number}")
    assert [] == without_reason
    assert found == USES
