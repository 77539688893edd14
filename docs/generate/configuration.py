"""The configuration reference as Markdown: docs/reference/configuration.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.configuration.reader import ENV_PREFIX, WORDS
from gateway.configuration.sections import Config
from gateway.configuration.settings_in_effect import ConfigurationKey, configuration_keys
from gateway.configuration.values import format_quantity
from spool.settings import Duration, Size

_TEXTS = tuple[str, ...]
_PLURALS = {str: "texts", _TEXTS: "lists of texts"}
_HEAD = f"""# Configuration

`tollhouse serve --config tollhouse.toml` reads one TOML file. Every key has a default. An unknown key is an error, and
the message names the nearest known key. An environment variable `{ENV_PREFIX}SECTION__KEY` overrides the file, and an
option of the command overrides both. All problems are reported together, with exit code 2. Relative paths are relative
to the file. `tollhouse init` writes a first file, and `tollhouse check` tests it.

- A **size** is `"64MiB"`, `"1.5GiB"`, `"100MB"` or a number of bytes.
- A **duration** is `"500ms"`, `"10s"`, `"5m"`, `"1h"`, `"7d"` or a number of seconds.
- A list is `["a", "b"]` in the file and `a,b` in the environment. `[[section]]` may appear several times in the file.
- NAME in a header is a name of your choice.

[tollhouse.schema.json](tollhouse.schema.json) is the JSON Schema of the file, for editors that complete and check TOML.
For Taplo and Even Better TOML, begin the file with the line `#:schema tollhouse.schema.json`.
"""


@dataclass(frozen=True, kw_only=True)
class ConfigurationTable:
    """
    A section of the configuration. `header` is its first line in a file, such as [[destinations]], or "" for
    settings outside of sections.
    """

    header: str
    words: str
    keys: tuple[ConfigurationKey, ...]


def tables(section: type[Any] = Config, header: str = "") -> Iterator[ConfigurationTable]:
    """Yield a section and its subsections, each after its parent."""
    found = configuration_keys(section)
    own = [key for key in found if not key.is_section]
    yield ConfigurationTable(header=header, words=inspect.cleandoc(section.__doc__ or ""), keys=tuple(own))
    for key in found:
        if key.is_section:
            inner = f"{header.strip('[]')}.{key.name}".lstrip(".")
            named = f"{inner}.NAME" if key.container is dict else inner
            yield from tables(key.kind, f"[[{named}]]" if key.container is tuple else f"[{named}]")


def page() -> str:
    return _HEAD + "".join(_section(table) for table in tables())


def _section(table: ConfigurationTable) -> str:
    title = f"`{table.header}`" if table.header else "Top-level settings"
    text = f"\n## {title}\n\n{_to_docs(table.words)}\n"
    if table.keys:
        text += "\n| key | type | default | what it is |\n|---|---|---|---|\n"
        text += "".join(
            f"| `{key.name}` | {_type(key)} | {_default(key)} | {_words(key)} |\n" for key in table.keys
        )
    return text


def _type(key: ConfigurationKey) -> str:
    words = {Size: "size", Duration: "duration", int: "number", _TEXTS: "list of texts"}
    one = words.get(key.kind) or WORDS[key.kind].removeprefix("a ").removesuffix(" as text or number")
    if key.container:
        return f"{'list' if key.container is tuple else 'table'} of {_PLURALS.get(key.kind, one)}"
    return one


def _default(key: ConfigurationKey) -> str:
    value = key.default
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{item}"' for item in value) + "]`"
    if isinstance(value, (str, Path)):
        return f'`"{value}"`'
    return f"`{format_quantity(key.kind, value)}`"


def _words(key: ConfigurationKey) -> str:
    return ". ".join(_to_docs(sentence) for sentence in _sentences(key)) + "."


def _sentences(key: ConfigurationKey) -> Iterator[str]:
    setting = key.setting
    yield setting.words
    if setting.choices:
        yield "One of " + ", ".join(f"`{choice}`" for choice in setting.choices if choice)
    if setting.least is not None:
        yield f"At least {format_quantity(key.kind, setting.least)}"
    if setting.edge:
        yield f"**At the limit:** {setting.edge}"


def _to_docs(words: str) -> str:
    """
    Make links in the help of settings relative to docs/reference. In the code, they are relative to docs/.
    """
    return words.replace("](", "](../")
