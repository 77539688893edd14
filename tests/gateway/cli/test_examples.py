"""Example calls of `tollhouse send --example`."""

from __future__ import annotations

import json
from time import time_ns

import pytest

from gateway.cli.send.command import EXAMPLES, example_payload
from gateway.normalise.formats.list import FORMAT_NAMES, recognise_format
from spool.record import NS
from tests.gateway.normalise.formats.payloads import one


def test_there_is_one_for_every_gateway_format() -> None:
    assert {name for name in FORMAT_NAMES if "/" not in name} | {"otlp/traces"} == set(EXAMPLES)


@pytest.mark.parametrize("format", EXAMPLES)
def test_it_is_recognised_and_becomes_one_call_of_now(format: str) -> None:
    body = example_payload(format)
    assert format == recognise_format(body)
    record = one(None, body)
    assert record.input_tokens == 1320
    assert record.output_tokens == 212
    assert record.provider and record.request_model
    if format != "helicone":  # the Helicone webhook contains no time
        assert record.start_time is not None
        assert abs(time_ns() - record.start_time) < 60 * NS


@pytest.mark.parametrize("format", EXAMPLES)
def test_each_time_it_is_another_call(format: str) -> None:
    assert one(None, example_payload(format)).id != one(None, example_payload(format)).id
    json.loads(example_payload(format))
