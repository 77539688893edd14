"""
Everything that a reader of the core must know: the modules that its imports reach, for type checkers too.

    python -m tests.closure    prints modules and code lines of both closures by floor
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.figures import PACKAGES, ROOT, weight
from tests.sources import contents

# A receives spans and sends records. B also stores them.
ROOTS: Mapping[str, tuple[str, ...]] = {
    "A": (
        "gateway.operations.receivers.ai_telemetry",
        "gateway.operations.receivers.otlp_http",
        "gateway.operations.receivers.otlp_grpc",
        "exporters.route_loop",
    ),
    "B": (
        "gateway.operations.receivers.ai_telemetry",
        "gateway.operations.receivers.otlp_http",
        "gateway.operations.receivers.otlp_grpc",
        "exporters.route_loop",
        "gateway.intake.intake",
        "exporters.forwarder",
        "exporters.otlp.telemetry",
        "spool.sqlite.log.log",
        "spool.sqlite.deliveries.deliveries",
    ),
}
# What an installation may do without. No closure reaches it.
PARTS = (
    "gateway.bills", "gateway.money", "gateway.clusters", "gateway.mcp", "gateway.devices.fleet",
    "gateway.devices.agent", "gateway.service", "gateway.cli", "exporters.lake", "exporters.kafka",
    "exporters.clickhouse", "spool.postgres",
)  # fmt: skip


def closure(roots: Iterable[str]) -> Mapping[str, str | None]:
    """Return the modules with code that imports of `roots` reach, each with the module that imports it first."""
    importers: dict[str, str | None] = dict.fromkeys(roots)
    waiting = deque(importers)
    while waiting:
        module = waiting.popleft()
        for name in _named_modules(module):
            if name not in importers:
                importers[name] = module
                waiting.append(name)
    return {module: importer for module, importer in importers.items() if contents(_path(module)).statements}


def _named_modules(module: str) -> Iterator[str]:
    """Yield the modules that a module imports, within functions too, or names in a text for a later import."""
    found = contents(_path(module))
    for name in sorted({*found.modules, *found.members, *found.texts}):
        if name.partition(".")[0] in PACKAGES and _find_path(name):
            yield name


@cache
def _find_path(module: str) -> Path | None:
    if not module.replace(".", "").isidentifier() or module.endswith("."):
        return None
    stem = ROOT.joinpath(*module.split("."))
    paths = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((path for path in paths if path.exists()), None)


def _path(module: str) -> Path:
    path = _find_path(module)
    if path is None:
        raise LookupError(f"there is no module {module}")
    return path


def code_lines(modules: Iterable[str]) -> int:
    return sum(weight(_path(module)).code_lines for module in modules)


def way_to_part(importers: Mapping[str, str | None]) -> list[str]:
    """Return the first way from a root to a module of a part, or no module."""
    within = (module for module in importers if any(f"{module}.".startswith(f"{part}.") for part in PARTS))
    module, way = next(within, None), []
    while module is not None:
        way.append(module)
        module = importers[module]
    return way[::-1]


def main() -> None:
    for name, roots in ROOTS.items():
        modules = closure(roots)
        print(f"{name}: {len(modules)} modules, {code_lines(modules):,} code lines")
        floors = Counter(".".join(module.split(".")[:2]) for module in modules)
        print(*(f"  {count:4} {floor}" for floor, count in floors.most_common()), sep="\n")


if __name__ == "__main__":
    main()
