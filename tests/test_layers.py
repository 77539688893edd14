"""The rules of the architecture: imports point down, each library and each rule has one place, names are unique."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from spool.record import Inference
from tests.sources import contents

ROOT = Path(__file__).parents[1]
BELOW = {"spool": set(), "exporters": {"spool"}, "gateway": {"spool", "exporters"}}
OUTSIDE = {"docs", "tests"}  # of the wheel


def imported(path: Path, *, members: bool = False) -> Sequence[str]:
    """Every module that a file imports, by its full name; with `members` also what it takes out of them."""
    found = contents(path)
    return [*found.modules, *found.members] if members else found.modules


@cache
def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def named(path: Path) -> str:
    """A module's full name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_make_no_circle() -> None:
    """No module imports itself by way of others: the order of imports never decides what works."""
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
    """A package imports only itself and the packages below it."""
    for path in modules(package):
        packages = {name.partition(".")[0] for name in imported(path)}
        assert set() == packages & ({*BELOW, *OUTSIDE} - BELOW[package] - {package}), path


def test_only_the_composition_root_and_the_command_line_know_exporters() -> None:
    """Inside gateway nobody but assembly/, configuration/ and cli/ imports exporters."""
    allowed = {
        *(ROOT / "gateway/service/assembly").rglob("*.py"),
        *(ROOT / "gateway/cli").rglob("*.py"),
        *(ROOT / "gateway/service/configuration").rglob("*.py"),
    }
    for path in set(modules("gateway")) - allowed:
        assert not [name for name in imported(path) if name.startswith("exporters")], path


def rooms() -> list[tuple[str, ...]]:
    """The rooms of gateway from the ground up, as ARCHITECTURE.md lists them."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## The rooms of gateway", 1)[1]
    return [tuple(line.split()[0].split("/")) for line in text.split("```")[1].splitlines() if line.strip()]


def room_of(module: str, order: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """
    The room of a module of gateway: the calls of a subject stand above the rules of all subjects, and its command is
    of the command line.
    """
    parts = tuple(module.split(".")[1:])
    if parts[-1] == "command":
        return ("cli",)
    if parts[1:2] == ("calls",) or parts[2:] == ("calls",):
        return ("*", "calls")
    return max((room for room in order if parts[: len(room)] == room), key=len, default=parts[:1])


def test_the_rooms_of_gateway_stand_in_order() -> None:
    """Inside gateway imports point down, too: no module needs one of a room that ARCHITECTURE.md lists later."""
    order = rooms()
    rank = {room: place for place, room in enumerate(order)}
    names = {named(path) for path in modules("gateway")} - {"gateway"}
    assert set() == {name for name in names if room_of(name, order) not in rank and name.count(".") > 1}
    for path in modules("gateway"):
        if (own := named(path)).count(".") < 2:
            continue  # a folder's own docstring, and `python -m gateway`
        needed = {name for name in imported(path, members=True) if name in names}
        floor = rank[room_of(own, order)]
        higher = [name for name in needed if rank.get(room_of(name, order), -1) > floor]
        room = "/".join(room_of(own, order))
        assert higher == [], (
            f"{path} stands in the room {room} and imports from rooms that ARCHITECTURE.md lists after it: "
            "move it, or give its folder a line of its own in that list"
        )


def test_normalisers_are_pure() -> None:
    """Normalisers are pure: they import no event loop, socket, database or storage engine."""
    waiting = ("asyncio", "aiohttp", "aiosqlite", "psycopg", "sqlite3", *ENGINES, "socket", "grpc")
    for path in (ROOT / "gateway/normalise").rglob("*.py"):
        assert not [name for name in imported(path) if name.startswith(waiting)], path


def test_products_know_no_other_product() -> None:
    """A product's module imports no other one: what two of them share is below them."""
    products = ROOT / "gateway/normalise/otlp/products"
    for path in set(products.glob("*.py")) - {products / "__init__.py"}:
        assert not [name for name in imported(path) if name.startswith("gateway.normalise.otlp.products")], (
            path
        )


def test_no_gateway_format_knows_another() -> None:
    """
    A format stands in its own file or folder and imports its declaration and shared rules, nothing that collects.
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


@pytest.mark.parametrize("area", ["http", "receivers", "api", "operator"])
def test_only_rows_name_paths(area: str) -> None:
    """Paths stand in rows, each once, above handlers: what handles a request knows no path."""
    for path in (ROOT / "gateway" / area).rglob("*.py"):
        assert not [text for text in contents(path).inner_texts if text.startswith(PATHS)], path


def test_destinations_know_no_other_destination() -> None:
    """A destination's module imports no other one: only the catalogue knows them all."""
    shared = {"exporters.destinations.declaration"}
    for path in set(modules("exporters/destinations")) - {ROOT / "exporters/destinations/catalogue.py"}:
        assert not [
            name
            for name in imported(path)
            if name.startswith("exporters.destinations") and name not in shared
        ], path


ENGINES = ("spool.sqlite", "spool.postgres")
TABLES = "spool.sql"  # what the engines that speak SQL keep alike
SMALL = "spool.sql.small"  # the names of tables, next to their protocols
SQL = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT (OR \w+ )?INTO|UPDATE \w+\s+SET|DELETE FROM|CREATE TABLE|PRAGMA)\b",
    re.DOTALL,
)


def test_nobody_knows_an_engine_but_the_list_of_engines() -> None:
    """
    Whatever is kept is reached through protocols: an engine is one folder and one line in spool/engines.py.

    What engines share is known to them alone, and knows none of them; of it protocols name the small tables.
    """
    for path in (path for package in BELOW for path in modules(package)):
        own = path.relative_to(ROOT).parts[:2]
        if own == ("spool", "engines.py") or ".".join(own) in ENGINES:
            continue
        hidden = ENGINES if ".".join(own) == TABLES else (*ENGINES, f"{TABLES}.")
        small = (SMALL, f"{SMALL}.SmallTable", f"{SMALL}.SmallTables") if own[0] == "spool" else ()
        found = set(imported(path, members=True)).difference(small)
        assert not [name for name in found if name.startswith(hidden)], path


def test_sql_stands_in_the_engine_alone() -> None:
    """Outside of the engines' folders nobody imports a database, writes SQL or names a file of SQLite."""
    homes = [ROOT / "spool" / name for name in ("sqlite", "postgres")]
    for path in (path for package in BELOW for path in modules(package)):
        if any(path.is_relative_to(home) for home in homes):
            continue
        assert not {"sqlite3", "aiosqlite", "psycopg"} & set(imported(path)), path
        if path.is_relative_to(ROOT / "spool/sql"):
            continue
        assert not [text for text in contents(path).texts if SQL.search(text) or text.endswith(".sqlite")], (
            path
        )


HOMES: dict[str, str | tuple[str, ...]] = {
    "cryptography": ("gateway/http/listening/tls.py", "exporters/notifications/kept_channels.py"),
    "tollhouse_native": "spool/packed/native.py",
    "aiosqlite": "spool/sqlite/database.py",
    "obstore": "exporters/lake/object_store.py",
    "pyarrow": ("exporters/lake/parquet.py", "gateway/bills/statements/parquet"),
    "jwt": "gateway/people/authentication/oidc/tokens.py",
    "grpc": "gateway/intake/receivers/otlp_grpc.py",
    "psycopg": "spool/postgres/connections/",
    "prometheus_client": "gateway/service/monitoring/",
    "yaml": "gateway/money/allocation/reading.py",
}


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_used_in_one_place(library: str) -> None:
    """Each third-party library is imported by one module or folder, so that it can be replaced."""
    for path in (path for package in BELOW for path in modules(package)):
        if str(path.relative_to(ROOT)).startswith(HOMES[library]):
            continue
        assert library not in {name.partition(".")[0] for name in imported(path)}, path


RUST_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"')


def test_the_compiled_module_knows_nothing_of_what_it_reads() -> None:
    """No name of a field, a product or an attribute stands in it: all of them are handed over."""
    products = {path.stem for path in (ROOT / "gateway/normalise/otlp/products").rglob("*.py")}
    known = {*Inference.__struct_fields__, *products, "tollhouse", "gen_ai"} - {"__init__"}
    for path in (ROOT / "native/src").glob("*.rs"):
        text = path.read_text()
        found = set(re.findall(r"\w+", " ".join(RUST_TEXTS.findall(text))))
        assert set() == found & known, path
        assert "unsafe " not in text, path
        assert path.name in ("lib.rs", "python.rs") or "#![forbid(unsafe_code)]" in text, path


def test_a_class_name_stands_for_one_class() -> None:
    """
    Who reads a public class name in one module may think of no other class of that name.

    But two engines may have a module of one name for the same thing.
    """
    paths: dict[str, set[str]] = defaultdict(set)
    for path in (path for package in (*BELOW, "docs") for path in modules(package)):
        for name in contents(path).classes:
            if not name.startswith("_"):
                module = str(path.relative_to(ROOT))
                paths[name].add(re.sub("^spool/(sqlite|postgres|memory)/", "", module))
    assert {} == {name: found for name, found in paths.items() if len(found) > 1}
