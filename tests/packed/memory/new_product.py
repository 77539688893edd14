"""A program that compares the rules with the memory on spans of an added product, and prints JSON."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec, module_from_spec

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SENT, LEARNED = 40, 25  # number of all requests, and of the first requests, from which the memory learns
READERS = "gateway.normalise.otlp"


def add_product() -> None:
    """Add the product to the list before the readers are imported, because they read the list on import."""
    spec = find_spec(READERS)
    assert spec is not None and spec.loader is not None and READERS not in sys.modules
    sys.modules[READERS] = readers = module_from_spec(spec)
    from gateway.normalise.otlp import products
    from tests.packed.memory.made_up import PRODUCT

    products.PRODUCTS = (PRODUCT, *products.PRODUCTS)
    spec.loader.exec_module(readers)


def request(number: int) -> bytes:
    """Return a request with four spans: three calls, one of them a draft, and a step that is no call."""
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    scope.scope.name = "madeup"
    for place, (step, run) in enumerate((("ask", "final:1"), ("ask", "draft:1"), ("ask", ""), ("plan", ""))):
        span = scope.spans.add(name="step", trace_id=number.to_bytes(15, "big") + bytes([place + 1]))
        span.span_id = (number * 8 + place + 1).to_bytes(8, "big")
        span.start_time_unix_nano = 1_790_000_000_000_000_000 + number * 1_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + 5_000_000
        texts = {
            "madeup.step": step, "madeup.engine": "gpt-4o", "madeup.session": f"session-{number}", "madeup.run": run,
        }  # fmt: skip
        for name, text in texts.items():
            span.attributes.add(key=name).value.string_value = text
        for name, count in (("madeup.read", 100 + 3 * number), ("madeup.written", 7 + number % 5)):
            span.attributes.add(key=name).value.int_value = count
    return message.SerializeToString()


def compared() -> dict[str, object]:
    """Compare the rules with the memory. Call add_product() first."""
    from gateway.normalise.memory.pace import AT_ONCE
    from gateway.normalise.memory.spans import SpanMemory
    from gateway.normalise.outcome import ReadOptions
    from spool.packed.native import load_native
    from spool.record import Inference
    from tests.packed.memory.both_ways import by_rules, run

    memory, different, calls = SpanMemory(load_native(), AT_ONCE), 0, list[Inference]()
    for number in range(SENT):
        if number == LEARNED:
            memory.spans.clear()
        remembered, expected = (
            run(memory.normalise_if_known(request(number), ReadOptions())),
            by_rules(request(number), ReadOptions()),
        )
        different += remembered is not None and remembered != expected
        calls += [record for record in expected.records if isinstance(record, Inference)]
    return {
        "different": different + memory.compared["different"],
        "sources": sorted({call.source for call in calls}),
        "calls": len(calls),
        "drafts": sum(call.region == "drafts" for call in calls),
        "input_tokens": sum(call.input_tokens or 0 for call in calls),
        "sessions": len({call.session for call in calls}),
        "remembered": memory.spans["reading"],
        "by_rules": memory.spans["rules"],
    }


if __name__ == "__main__":
    add_product()
    print(json.dumps(compared()))
