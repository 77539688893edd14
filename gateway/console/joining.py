"""
Joining of the console's modules into few files, so that a page takes few requests.

Each module becomes a function that returns its exports, so names of two modules cannot collide. A source map
leads the tools of a browser from each line of a file to the line of its source.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from posixpath import dirname, normpath
from typing import Any

FIRST = "app.mjs"  # name of the script file that every page loads
# frequently opened pages, whose modules are part of the first file
_OFTEN = ("pages/overview.mjs", "pages/costs.mjs")
_MANY = 6  # a module that at least this number of files need is part of the first file
# Matches an import at the beginning of a line or after a statement. Texts that contain code have neither.
_IMPORT = re.compile(r'import(?<![^\n]import) ?(\w+|\{[^}]*\}) ?from ?"(\.[^"]+)";')
_EXPORTS = re.compile(r'export(?<![^\n;}]export) ?\{([^}]*)\}(?: from "(\.[^"]+)")?;')
_EXPORT = re.compile(
    r"export(?<![^\n;]export) (default function|(?:async function|function|const|class) (\w+))"
)
_LOADED_LATER = re.compile(r'import\("(\.[^"]+)"\)')

Graph = Mapping[str, Collection[str]]


def join_script_modules(
    minified_by_path: Mapping[str, str], source_by_path: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return each file and its source map by path. A minified text has the lines of its source."""
    graph = imports_by_module(minified_by_path)
    parts = _divide_into_files(graph, _lazy_module_paths(minified_by_path))
    home = {module: path for path, inside in parts.items() for module in inside}
    found = {}
    for path, inside in parts.items():
        foreign = {each for module in inside for each in graph[module] if home[each] != path}
        up = "./" + "../" * path.count("/")
        lines = [
            "".join(f'import {{{_variable_name(each)}}} from "{up}{home[each]}";' for each in sorted(foreign))
        ]
        sections, exports = [], list[str]()
        for module in inside:
            text, exports = _module_as_function(module, minified_by_path[module], up)
            sections.append(_source_map_section(len(lines), module, source_by_path[module]))
            lines += text
        lines.append(f"export {{{', '.join(map(_variable_name, inside))}}};")
        if path != FIRST:
            lines.append(f"export const {{{', '.join(exports)}}} = {_variable_name(path)};")
        lines.append(f"//# sourceMappingURL={path.rpartition('/')[2]}.map\n")
        found[path] = "\n".join(lines), json.dumps({"version": 3, "sections": sections})
    return found


def imports_by_module(minified_by_path: Mapping[str, str]) -> Graph:
    """Return the modules that each module imports at once. Modules loaded later are left out."""
    found = {}
    for path, text in minified_by_path.items():
        names = [name for pattern in (_IMPORT, _EXPORTS) for _, name in pattern.findall(text) if name]
        found[path] = dict.fromkeys(_resolve_path(path, name) for name in names)
    return found


def modules_in_import_order(
    graph: Graph, entry_modules: Iterable[str], left_out: Collection[str] = ()
) -> list[str]:
    """
    Return these modules and those that they import, each module after its imports. Modules in `left_out` are
    left out.
    """
    found: dict[str, None] = {}

    def add_with_imports(path: str) -> None:
        if path not in found:
            for module in graph[path]:
                if module not in left_out:
                    add_with_imports(module)
            found[path] = None

    for path in entry_modules:
        add_with_imports(path)
    return list(found)


def _lazy_module_paths(minified_by_path: Mapping[str, str]) -> list[str]:
    return sorted(
        {
            _resolve_path(path, name)
            for path, text in minified_by_path.items()
            for name in _LOADED_LATER.findall(text)
        }
    )


def _divide_into_files(graph: Graph, lazy_module_paths: Collection[str]) -> dict[str, list[str]]:
    """
    Return the modules of each file, each after those that it imports.

    The first file has what many files need. A file loaded later contains the modules that only it needs. Any
    other shared module is a file of its own.
    """
    imported = {path: modules_in_import_order(graph, [path], lazy_module_paths) for path in lazy_module_paths}
    uses = Counter(module for path in lazy_module_paths for module in imported[path][:-1])
    often = [module for path in _OFTEN for module in imported[path][:-1]]
    many = [module for module, number in uses.items() if number >= _MANY]
    first = modules_in_import_order(graph, [*often, *many, FIRST], lazy_module_paths)
    some = sorted(module for module, number in uses.items() if number > 1 and module not in first)
    own = {
        path: [each for each in imported[path] if each not in (*first, *some)] for path in lazy_module_paths
    }
    return {FIRST: first} | own | {module: [module] for module in some}


def _resolve_path(path: str, name: str) -> str:
    return normpath(f"{dirname(path)}/{name}").lstrip("/")


def _variable_name(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".mjs"))


def _module_as_function(module: str, text: str, path_to_root: str) -> tuple[list[str], list[str]]:
    """
    Return the lines of a module as a function called once, and the names of its exports.

    `path_to_root` leads from the file to the folder of all files.
    """
    returned: dict[str, str] = {}

    def rewrite_export_list(match: re.Match[str]) -> str:
        source = f"{_variable_name(_resolve_path(module, match[2]))}." if match[2] else ""
        returned.update({outer: source + inner for inner, outer in _parse_name_pairs(match[1])})
        return ""

    def rewrite_export(match: re.Match[str]) -> str:
        returned[match[2] or "default"] = match[2] or "$default"
        return match[1] if match[2] else "const $default = function"

    def rewrite_import(match: re.Match[str]) -> str:
        names = match[1] if match[1].startswith("{") else f"default as {match[1]}"
        return (
            f"const {_object_literal(_parse_name_pairs(names.strip('{}')))} = "
            f"{_variable_name(_resolve_path(module, match[2]))};"
        )

    text = _LOADED_LATER.sub(lambda found: f'import("{path_to_root}{_resolve_path(module, found[1])}")', text)
    body = _EXPORT.sub(rewrite_export, _EXPORTS.sub(rewrite_export_list, _IMPORT.sub(rewrite_import, text)))
    lines = f"const {_variable_name(module)} = (() => {{{body}".removesuffix("\n").split("\n")
    return [*lines, f"return {_object_literal(returned.items())};}})();"], list(returned)


def _object_literal(names: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(one if one == other else f'{one}: {other}' for one, other in names)}}}"


def _parse_name_pairs(names: str) -> list[tuple[str, str]]:
    words = [each.split() for each in names.split(",")]
    return [(each[0], each[-1]) for each in words if each]


def _source_map_section(line: int, module: str, source: str) -> dict[str, Any]:
    mappings = "AAAA" + ";AACA" * (source.count("\n") - 1)
    of_module = {
        "version": 3,
        "sources": [module],
        "sourcesContent": [source],
        "names": [],
        "mappings": mappings,
    }
    return {"offset": {"line": line, "column": 0}, "map": of_module}
