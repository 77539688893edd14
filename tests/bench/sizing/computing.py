"""Capacity and limits of machines, computed from measured constants and default settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from exporters.settings import UpstreamSettings
from spool.settings import SpoolSettings

DAY_S = 86_400
BUSY = 0.6  # share of a machine's processors that may be in use; the rest is for peaks and a failed node
CORES = 2  # number of cores per machine in the tables
ANSWER_S = 0.1  # response time of an upstream to a delivery
GIB = 1 << 30
PLACE_BYTES = (
    17  # bytes of memory for the position of an id; only the newest eighth of the ids have positions
)


@dataclass(frozen=True, kw_only=True)
class SizingFigures:
    """Measured constants. `cpu_us` maps the number of spans per request to processor time."""

    machine: str
    time: str
    commit: str
    cpu_us: Mapping[str, float]
    record_bytes: float  # bytes on disk per record, including its entry in the duplicate index
    id_bytes: float  # bytes of memory per id in the duplicate window
    sent_bytes: float  # compressed bytes per record that are sent to the upstream

    def a_core(self, spans: str) -> float:
        """Return records per second of one core."""
        return 1e6 / self.cpu_us[spans]

    def a_machine(self, spans: str) -> float:
        """Return the sustained records per second of a machine, whose gateway is one process."""
        return BUSY * self.a_core(spans)


def figures_of(document: Mapping[str, object]) -> SizingFigures:
    names = {one.name for one in fields(SizingFigures)}
    return SizingFigures(**{name: value for name, value in document.items() if name in names})  # type: ignore[arg-type]


def limits(figures: SizingFigures) -> str:
    """Format the limits of one machine with the defaults, the lowest first."""
    spool, upstream = SpoolSettings(), UpstreamSettings()
    week_s = 7 * DAY_S
    rows = [
        (
            spool.duplicate_ids / spool.duplicate_window,
            f"repeats recognized for all of `spool.duplicate_window` ({days(spool.duplicate_window)})",
            f"the window gets shorter: at 1,000 calls a second it is {hours(spool.duplicate_ids / 1000)}",
            f"`spool.duplicate_ids` ({spool.duplicate_ids:,}); {figures.id_bytes:.0f} bytes of memory each, "
            f"{figures.id_bytes + PLACE_BYTES:.0f} of the newest eighth",
        ),
        (
            spool.max_bytes / figures.record_bytes / week_s,
            "an upstream that is away for a week, or a week stored for replay",
            "senders get 503 with Retry-After and retry; nothing is lost",
            f"`spool.max_bytes` ({spool.max_bytes / GIB:.0f} GiB)",
        ),
        *(
            (
                figures.a_machine(spans),
                f"the processor, {spans} {'span' if spans == '1' else 'spans'} a request, {BUSY * 100:.0f} % "
                "busy",
                "answers take longer, then 503",
                "larger requests, more gateways" if spans != "100" else "more gateways",
            )
            for spans in ("1", "10", "100")
        ),
        (
            upstream.in_flight * upstream.batch_records / ANSWER_S,
            f"the upstream, if it answers within {ANSWER_S * 1000:.0f} ms",
            "the queue grows",
            f"`upstream.in_flight` ({upstream.in_flight}), `upstream.batch_records` "
            f"({upstream.batch_records:,})",
        ),
    ]
    lines = ["| calls a second, up to | limit | above it | to raise it |", "|---|---|---|---|"]
    for calls, limit, beyond, setting in sorted(rows):
        lines.append(f"| {rounded(calls)} | {limit} | {beyond} | {setting} |")
    return "\n".join(lines)


def needs(figures: SizingFigures) -> str:
    """Format the machine needs per rate."""
    lines = [
        f"| calls a second | a day | machines of {CORES} cores at 100 / 10 / 1 spans a request | disk a day "
        "| ids of 7 days: number, memory | to the upstream |",
        "|---|---|---|---|---|---|",
    ]
    for calls in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        machines = " / ".join(rounded_up(calls / figures.a_machine(spans)) for spans in ("100", "10", "1"))
        ids = calls * 7 * DAY_S
        lines.append(
            f"| {calls:,} | {count(calls * DAY_S)} | {machines} | "
            f"{size(calls * DAY_S * figures.record_bytes)} "
            f"| {count(ids)}, {size(ids * figures.id_bytes)} | {bits(calls * figures.sent_bytes)} |"
        )
    return "\n".join(lines)


def rounded(number: float) -> str:
    """Round down to two digits."""
    step = 10 ** max(0, len(str(int(number))) - 2)
    return f"{int(number) // step * step:,}"


def rounded_up(number: float) -> str:
    return f"{-int(-number // 1):,}"


def count(number: float) -> str:
    for name, unit in (("billion", 1e9), ("million", 1e6)):
        if number >= unit:
            return f"{number / unit:,.{1 if number < 10 * unit else 0}f} {name}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    for name, unit in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= unit:
            return f"{number / unit:,.{1 if number < 10 * unit else 0}f} {name}"
    return f"{number / 1e3:,.0f} kB"


def bits(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8 / 1e6:,.{1 if bytes_per_s < 1e6 else 0}f} Mbit/s"


def days(seconds: float) -> str:
    return f"{seconds / DAY_S:.0f} days"


def hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours"
