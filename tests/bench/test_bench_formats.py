"""Cost per LiteLLM event, from body bytes to records with dedup keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Any

import orjson
import pytest

from gateway.normalise import any_format
from gateway.normalise.outcome import ReadOptions
from tests.gateway.normalise.formats.payloads import case, run

ROUNDS, EVENTS = 9, 512


def best(action: Callable[[], object]) -> float:
    """Return seconds of the best of several rounds, because noise only adds time."""
    times = []
    for _ in range(ROUNDS):
        start = process_time()
        action()
        times.append(process_time() - start)
    return min(times)


def batch() -> bytes:
    """Make 512 logging payloads of real size, including the model's price and the messages."""
    events: list[dict[str, Any]] = case("litellm", "slp-batch-array")
    prices = {f"{kind}_cost_per_token_above_{step}k_tokens": 1.25e-06 for kind in "io" for step in range(25)}
    for event in events:
        event["model_map_information"]["model_map_value"] |= prices
        event["messages"] = [{"role": "user", "content": "What does it cost? " * 60}]
    return json.dumps([events[n % 3] | {"id": f"chatcmpl-{n:024d}"} for n in range(EVENTS)]).encode()


@pytest.mark.bench
def test_an_event_costs_about_what_parsing_it_costs() -> None:
    """
    Decoding, normalising, tags and dedup key together take about as long as orjson.loads of the same body.
    """
    body = batch()
    ours = best(lambda: run(any_format.normalise_body("litellm", body, options=ReadOptions())))
    theirs = best(lambda: orjson.loads(body))
    size = len(body) / EVENTS / 1000
    print(
        f"\n{ours / EVENTS * 1e6:.1f} µs an event of {size:.1f} kB, orjson.loads {theirs / EVENTS * 1e6:.1f} "
        "µs, "
        f"ratio {ours / theirs:.2f}"
    )
    assert ours <= 10 * theirs  # a generous factor, because the machine may be busy


@pytest.mark.bench
def test_a_broken_member_costs_the_batch_little() -> None:
    """
    An array with one NaN is split by the slow splitter, but its other 511 events are still decoded by the fast
    parser.
    """
    body = batch()
    broken = body.replace(b'"saved_cache_cost": 0.0', b'"saved_cache_cost": NaN', 1)
    whole = best(lambda: run(any_format.normalise_body("litellm", body, options=ReadOptions())))
    cut = best(lambda: run(any_format.normalise_body("litellm", broken, options=ReadOptions())))
    print(f"\nwhole {whole * 1e3:.1f} ms, with a NaN {cut * 1e3:.1f} ms, ratio {cut / whole:.1f}")
    assert cut <= 10 * whole
