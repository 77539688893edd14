"""
The architecture rules: imports point down, each library and each rule has one place, and names are unique.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from spool.record import Inference
from tests.sources import contents

ROOT = Path(__file__).parents[1]
BELOW = {"spool": set(), "exporters": {"spool"}, "gateway": {"spool", "exporters"}}
OUTSIDE = {"docs", "tests"}  # the wheel does not contain these packages


def imported(path: Path, *, members: bool = False) -> Sequence[str]:
    """
    Return every module that a file imports, by full name. With `members`, also the names imported from modules.
    """
    found = contents(path)
    return [*found.modules, *found.members] if members else found.modules


@cache
def modules(folder: str) -> list[Path]:
    """Return the modules of a folder and of the folders in it. A folder without modules is an error."""
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"{folder} is missing or has no modules"
    return found


def named(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_make_no_circle() -> None:
    """No module imports itself through others, so the order of imports never matters."""
    paths = {named(path): path for package in BELOW for path in modules(package)}
    needs = {
        module: {
            package
            for name in imported(path, members=True)
            for package in (name, *(str(name).rsplit(".", n)[0] for n in range(1, name.count("."))))
            if package in paths and not f"{module}.".startswith(f"{package}.")
        }
        for module, path in paths.items()
    }
    assert len(paths) == len(list(TopologicalSorter(needs).static_order()))


@pytest.mark.parametrize("package", BELOW)
def test_imports_point_down(package: str) -> None:
    for path in modules(package):
        packages = {name.partition(".")[0] for name in imported(path)}
        assert set() == packages & ({*BELOW, *OUTSIDE} - BELOW[package] - {package}), path


def test_only_the_composition_root_and_the_command_line_know_exporters() -> None:
    """FOCUS exports also use the columns of the standard, which are pure code."""
    allowed = {
        *modules("gateway/service/assembly"),
        *modules("gateway/cli"),
        *modules("gateway/configuration"),
    }
    focus = {*modules("gateway/money/focus"), ROOT / "gateway/operations/money/costs/focus.py"}
    for path in set(modules("gateway")) - allowed:
        known = "exporters.focus" if path in focus else "no module"
        assert not [
            name for name in imported(path) if name.startswith("exporters") and not name.startswith(known)
        ]


def floors() -> list[tuple[str, ...]]:
    """Return the rooms of each floor of gateway from the top down, as ARCHITECTURE.md shows them."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## The floors of gateway", 1)[1]
    picture = text.split("```")[1].strip().splitlines()
    return [tuple(line.split("  ")[0].split(" | ")) for line in picture]


def test_every_folder_of_gateway_is_in_the_picture_of_floors() -> None:
    """A room is a folder of gateway. The folders on the disk and in the picture of floors are the same."""
    folders = {
        path.relative_to(ROOT / "gateway").parts[0]
        for path in modules("gateway")
        if path.parent.name != "gateway"
    }
    assert sorted(folders) == sorted(room for floor in floors() for room in floor)


@pytest.mark.parametrize("room", [room for floor in floors() for room in floor])
def test_a_room_imports_only_from_lower_floors(room: str) -> None:
    """
    Imports point to a lower floor, and rooms on one floor do not know each other. A text that equals the name of
    a module counts as an import of the module.
    """
    order = floors()
    floor = next(place for place, rooms in enumerate(order) if room in rooms)
    lower = {f"gateway.{each}" for rooms in order[floor + 1 :] for each in rooms}
    names = {named(path) for path in modules("gateway")} - {"gateway"}
    for path in modules(f"gateway/{room}"):
        needed = names & {*imported(path, members=True), *contents(path).texts}
        rooms = {".".join(name.split(".")[:2]) for name in needed}
        assert set() == rooms - lower - {f"gateway.{room}"}, path


@pytest.mark.parametrize("package", BELOW)
def test_folders_of_tests_equal_those_of_the_code(package: str) -> None:
    """
    The folders of a package's tests have the names of its folders. The contract of the engines and the tests of
    disks are the exceptions.
    """
    folders = {path.name for path in (ROOT / package).iterdir() if path.is_dir()}
    more = {"contract", "disks"} if package == "spool" else set()
    tested = {
        path.relative_to(ROOT / "tests" / package).parts[0]
        for path in modules(f"tests/{package}")
        if path.parent.name != package
    }
    assert set() == tested - folders - more


def test_normalisers_are_pure() -> None:
    waiting = ("asyncio", "aiohttp", "aiosqlite", "psycopg", "sqlite3", *ENGINES, "socket", "grpc")
    for path in modules("gateway/normalise"):
        assert not [name for name in imported(path) if name.startswith(waiting)], path


def test_products_know_no_other_product() -> None:
    """A product's module imports no other product. Rules that two products share are in a lower module."""
    for path in modules("gateway/normalise/otlp/products"):
        if path.name == "__init__.py":
            continue
        assert not [name for name in imported(path) if name.startswith("gateway.normalise.otlp.products")], (
            path
        )


def test_no_gateway_format_knows_another() -> None:
    """
    A format has its own file or folder. It imports only its declaration and shared rules, not the list of formats.
    """
    formats = ROOT / "gateway/normalise/formats"
    package = "gateway.normalise.formats"
    for own in formats.iterdir():
        if own.stem in ("__init__", "__pycache__", "engine", "list"):
            continue
        allowed = (f"{package}.engine.declaration", f"{package}.{own.stem}")
        for path in own.rglob("*.py") if own.is_dir() else [own]:
            known = {name for name in imported(path) if name.startswith(package)}
            assert not [
                name for name in known if not f"{name}.".startswith(tuple(f"{one}." for one in allowed))
            ], path


PATHS = ("/v1", "/v2", "/api/", "/unit-cost/", "/console")


@pytest.mark.parametrize("folder", ["gateway/http", "gateway/operations"])
def test_only_rows_name_paths(folder: str) -> None:
    """Only the tables of addresses name paths, each path once. Handlers of requests name none."""
    for path in modules(folder):
        assert not [text for text in contents(path).inner_texts if text.startswith(PATHS)], path


def test_destinations_know_no_other_destination() -> None:
    """A destination's module imports no other destination. Only the catalogue imports them all."""
    shared = {"exporters.destinations.declaration"}
    for path in set(modules("exporters/destinations")) - {ROOT / "exporters/destinations/catalogue.py"}:
        assert not [
            name
            for name in imported(path)
            if name.startswith("exporters.destinations") and name not in shared
        ], path


ENGINES = ("spool.sqlite", "spool.postgres")
TABLES = "spool.sql"  # the SQL engines share this package
SMALL = "spool.sql.small"  # its SmallTable declares a table next to the protocol
SQL = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT (OR \w+ )?INTO|UPDATE \w+\s+SET|DELETE FROM|CREATE TABLE|PRAGMA)\b",
    re.DOTALL,
)


def test_nobody_knows_an_engine_but_the_list_of_engines() -> None:
    """
    Code uses storage through protocols. An engine is one folder and one line in spool/engines.py.

    Only engines import the code that they share, and that code imports no engine. Protocols import only the
    declaration of small tables from it.
    """
    for path in (path for package in BELOW for path in modules(package)):
        own = path.relative_to(ROOT).parts[:2]
        if own == ("spool", "engines.py") or ".".join(own) in ENGINES:
            continue
        hidden = ENGINES if ".".join(own) == TABLES else (*ENGINES, f"{TABLES}.")
        small = (SMALL, f"{SMALL}.SmallTable", f"{SMALL}.SmallTables") if own[0] == "spool" else ()
        found = set(imported(path, members=True)).difference(small)
        assert not [name for name in found if name.startswith(hidden)], path


def test_only_the_engines_contain_sql() -> None:
    """Outside the engines' folders and the files of facts, no module has SQL, a database or the name of its file."""
    homes = [ROOT / "spool" / name for name in ("sqlite", "postgres")]
    for path in (path for package in BELOW for path in modules(package)):
        if any(path.is_relative_to(home) for home in homes):
            continue
        # `tollhouse version` prints the version of SQLite, and does not load an engine for it.
        version = {"sqlite3"} if path == ROOT / "gateway/cli/__init__.py" else set()
        assert not {"sqlite3", "aiosqlite", "psycopg"} & set(imported(path)) - version, path
        if path.is_relative_to(ROOT / "spool/sql") or path.is_relative_to(ROOT / "spool/ledger/files"):
            continue
        assert not [text for text in contents(path).texts if SQL.search(text) or text.endswith(".sqlite")], (
            path
        )


HOMES: dict[str, str | tuple[str, ...]] = {
    "cryptography": (
        "gateway/configuration/certificates.py",
        "gateway/devices/agent/policy/signatures.py",
        "exporters/notifications/kept_channels.py",
    ),
    "tollhouse_native": "spool/packed/native.py",
    "aiosqlite": "spool/sqlite/database.py",
    "obstore": "exporters/lake/object_store.py",
    "pyarrow": ("exporters/lake/parquet.py", "gateway/core/parquet"),
    "jwt": "gateway/people/authentication/oidc/tokens.py",
    "grpc": "gateway/operations/receivers/otlp_grpc.py",
    "psycopg": "spool/postgres/connections/",
    "prometheus_client": "gateway/monitoring/",
    "yaml": "gateway/core/yaml_text.py",
}


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_used_in_one_place(library: str) -> None:
    for path in (path for package in BELOW for path in modules(package)):
        if str(path.relative_to(ROOT)).startswith(HOMES[library]):
            continue
        assert library not in {name.partition(".")[0] for name in imported(path)}, path


LOCKS = ("requirements.lock", *(f"requirements-{extra}.lock" for extra in ("kafka", "lake", "postgres")))
# Python 3.14 has the first, and the second is the compiled module, which is optional. The third reads and writes the
# files of facts, which only tests use until they replace the sums of the ledger.
NOT_LOCKED = {"compression", "tollhouse_native", "duckdb"}


def test_every_library_is_locked() -> None:
    """The libraries that modules import are those that the package or one of its extras installs."""
    texts = [(ROOT / "deploy/locks" / lock).read_text() for lock in LOCKS]
    locked = {name for text in texts for name in re.findall(r"^(\S+)==", text, re.MULTILINE)}
    owners = packages_distributions()
    for path in (path for package in BELOW for path in modules(package)):
        libraries = {name.partition(".")[0] for name in imported(path)} - sys.stdlib_module_names
        for library in libraries - BELOW.keys() - NOT_LOCKED:
            installed = {re.sub(r"[-_.]+", "-", name).lower() for name in owners.get(library, ())}
            assert installed & locked, (path, library)


RUST_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"')


def test_the_compiled_module_knows_nothing_of_what_it_reads() -> None:
    """The compiled module contains no name of a field, product or attribute. Python passes all of them in."""
    products = {path.stem for path in modules("gateway/normalise/otlp/products")}
    known = {*Inference.__struct_fields__, *products, "tollhouse", "gen_ai"} - {"__init__"}
    for path in (ROOT / "native/src").glob("*.rs"):
        text = path.read_text()
        found = set(re.findall(r"\w+", " ".join(RUST_TEXTS.findall(text))))
        assert set() == found & known, path
        assert "unsafe " not in text, path
        assert path.name in ("lib.rs", "python.rs") or "#![forbid(unsafe_code)]" in text, path


def test_public_class_name_is_unique() -> None:
    """
    A public class name is unique, so a reader cannot confuse two classes.

    Exception: two engines may use one name for the same thing in modules of the same name.
    """
    paths: dict[str, set[str]] = defaultdict(set)
    for path in (path for package in (*BELOW, "docs") for path in modules(package)):
        for name in contents(path).classes:
            if not name.startswith("_"):
                module = str(path.relative_to(ROOT))
                paths[name].add(re.sub("^spool/(sqlite|postgres|memory)/", "", module))
    assert {} == {name: found for name, found in paths.items() if len(found) > 1}
