"""
Generates the documents that are made from the code: `python -m docs.generate [DIRECTORY]`, default docs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from docs.generate import (
    commands,
    configuration,
    connect,
    console_fields,
    http_api,
    json_schema,
    published,
    settings_files,
)

_CONSOLE = "../gateway/console/static"  # a path in the same checkout as the docs


def reference(docs: Path) -> Mapping[str, str]:
    """
    Return the text of each file that is made from the code. Equal code gives equal files.
    """
    return {
        "reference/configuration.md": configuration.page(),
        "reference/tollhouse.schema.json": json_schema.text(),
        "reference/commands.md": commands.page(),
        **{f"reference/{name}": text for name, text in http_api.pages().items()},
        "reference/published.md": published.page(),
        settings_files.PAGE: settings_files.page(docs),
        f"{_CONSOLE}/pages/connect_texts.mjs": connect.module(docs),
        f"{_CONSOLE}/lib/resource_fields.mjs": console_fields.module(),
    }


if __name__ == "__main__":
    directory = Path(*sys.argv[1:2] or ["docs"])
    (directory / "reference/api").mkdir(parents=True, exist_ok=True)
    for name, text in reference(directory).items():
        if (directory / name).parent.is_dir():
            (directory / name).write_text(text)
