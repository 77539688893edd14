"""The table of files in the page about settings as files, from the declarations of their objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gateway.operations.files.kinds import file_kinds

PAGE = "operations/settings-as-files.md"
_TABLE = re.compile(r"(^\| file \| .*\n\|---.*\n)((?:\|.*\n)+)", re.MULTILINE)


def page(docs: Path) -> str:
    """Return the page with the rows of its table replaced."""
    return _TABLE.sub(lambda table: table[1] + "".join(_rows()), (docs / PAGE).read_text())


def _rows() -> Iterator[str]:
    for name, kind in file_kinds().items():
        file = f"{name}/" if kind.files.is_folder else f"{name}.yaml"
        names = [
            f"a {field}" if f"{field}s" == target else target for field, target in kind.files.refers.items()
        ]
        cells = (f"`{file}`", ", ".join(kind.files.key), ", ".join(names))
        yield f"|{''.join(f' {cell} |' if cell else ' |' for cell in cells)}\n"
