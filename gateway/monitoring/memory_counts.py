"""What the memory of spans counts, as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class ReadMemory(Protocol):
    """The memory of spans, as far as metrics show it."""

    spans: Counter[str]
    misses: Counter[str]
    compared: Counter[str]

    @property
    def kinds(self) -> int: ...

    @property
    def size(self) -> int: ...


class MemoryCounts(Collector):
    """Reads the counts when they are asked for."""

    def __init__(self, memory: ReadMemory) -> None:
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        """Yield spans by who read them, misses by reason, and comparisons by result."""
        memory = self._memory
        yield _family("spans", "Spans that were read by the memory or by the rules", "by", memory.spans)
        yield _family("misses", "Spans or bodies that the memory did not know", "reason", memory.misses)
        yield _family("compared", "Spans that were read both ways", "result", memory.compared)


def _family(name: str, words: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"tollhouse_memory_{name}", words, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
