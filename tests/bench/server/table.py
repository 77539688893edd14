"""Rounds as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.acceptance.conftest import ROOT
from tests.bench.server.rounds import Figures

COLUMNS: dict[str, tuple[Callable[[Figures], float | None], str]] = {
    "accepted/s": (lambda one: one.accepted_per_s or None, ",.0f"),
    "delivered/s": (lambda one: one.delivered_per_s, ",.0f"),
    "CPU us": (lambda one: one.cpu_us or None, ",.1f"),
    "p50 ms": (lambda one: one.latencies_ms.get("p50"), ",.1f"),
    "p99 ms": (lambda one: one.latencies_ms.get("p99"), ",.1f"),
    "max ms": (lambda one: one.latencies_ms.get("max"), ",.0f"),
    "written B": (lambda one: one.written_bytes, ",.0f"),
    "commits": (lambda one: one.commits, ".4f"),
    "peak MiB": (lambda one: one.peak_mib, ",.0f"),
    "ready s": (lambda one: one.ready_s, ",.1f"),
    "lag ms": (lambda one: one.lag_ms, ",.0f"),
    "instructions": (lambda one: one.instructions, ",.0f"),
    "load": (lambda one: one.load_busy if one.requests else None, ".2f"),
    "others": (lambda one: one.others_busy if one.requests else None, ".2f"),
}


def table(rounds: Sequence[Figures]) -> str:
    """Format the medians per scenario and target as Markdown, in the order of their first round."""
    groups: dict[tuple[str, str], list[Figures]] = {}
    for figures in rounds:
        groups.setdefault((figures.scenario, figures.target), []).append(figures)
    shown = [name for name, (value, _) in COLUMNS.items() if any(value(one) is not None for one in rounds)]
    lines = [["scenario", "target", *shown, "failed"]]
    for (scenario, target), group in groups.items():
        cells = [_cell(name, group) for name in shown]
        lines.append([scenario, target, *cells, _failures(group)])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _cell(name: str, group: Sequence[Figures]) -> str:
    value, form = COLUMNS[name]
    values = [found for one in group if (found := value(one)) is not None]
    return format(statistics.median(values), form) if values else ""


def _failures(group: Sequence[Figures]) -> str:
    """Describe the failures of a round in words. Empty if there were none."""
    counts = {
        "refused": sum(sum(one.refused.values()) for one in group),
        "broken": sum(one.broken for one in group),
        "not delivered": sum(max(0, one.undelivered) for one in group),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def machine() -> dict[str, object]:
    """Describe the machine that produced the figures."""
    models = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    git = shutil.which("git")
    commit = ""
    if git is not None:
        words = [git, "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()
    return {
        "processor": models[0].partition(": ")[2] if models else platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": commit,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write_json(rounds: Sequence[Figures], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"machine": machine(), "rounds": [figures.to_json() for figures in rounds]}
    path.write_text(json.dumps(said, indent=1) + "\n")
