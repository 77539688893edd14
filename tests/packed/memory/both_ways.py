"""Comparison of the rules with the memory of spans."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

from gateway.normalise import otlp
from gateway.normalise.memory.spans import SpanMemory
from gateway.normalise.outcome import ReadOptions, ReadOutcome

T = TypeVar("T")


def run(work: Generator[None, None, T]) -> T:
    """Run a job with slices to its end and return its result."""
    try:
        while True:
            next(work)
    except StopIteration as done:
        result: T = done.value
        return result


def by_rules(body: bytes, options: ReadOptions) -> ReadOutcome:
    return run(otlp.normalise_otlp("traces", body, json=False, options=options))


def differences(
    memory: SpanMemory, bodies: Iterable[bytes], options: ReadOptions, *, spans: int, stop: bool = False
) -> int:
    """
    Count the requests for which the memory and the rules differ.

    Read at least `spans` spans in total. With `stop`, end at the first difference.
    """
    found = read = 0
    for body in bodies:
        remembered = run(memory.normalise_if_known(body, options))
        expected = by_rules(body, options)
        found += remembered is not None and remembered != expected
        read += expected.received
        if read >= spans or (stop and found + memory.compared["different"]):
            break
    return found + memory.compared["different"]
