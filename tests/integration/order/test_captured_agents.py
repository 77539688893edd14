"""
Captured agents that start agents. In any order, split anywhere, with restarts, each call counts once, in the run of
its agent, and the runs are one tree.

The provider served the calls in a known order: an agent starts an agent that starts an agent, and then each one
answers. So the sums of each level are counted by hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.people.authentication.bearer import AuthenticatedKey
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow
from spool.record import Inference
from tests.clients import capture
from tests.clients.capture import Capture, SentRequest
from tests.clients.journal import Call
from tests.gateway.normalise.otlp.payloads import in_protobuf
from tests.integration.order.running import HOLD_S, SEED, SENDER, Gateway, Request, cut, records_of
from tests.integration.order.test_claude_code_behind_litellm import LAPTOP
from tests.rounds import IS_LONG, as_proof, part
from tests.spool.contract.examples import NOON
from tests.spool.ledger.engines import ENGINES, MEMORY, Ledgers
from tests.spool.ledger_log import FakeClock, FakeLog

ORDERS = 40 if IS_LONG else 1
EVER: Any = {"since": datetime(2020, 1, 1, tzinfo=UTC), "until": datetime(2030, 1, 1, tzinfo=UTC)}
LATE = HOLD_S + 1.0
CLAUDE_BEHIND_LITELLM = "claude_code_litellm"


@dataclass(frozen=True)
class Family:
    """
    `levels` has the level of each call, in the order in which the provider served them. `has_main_run` is False if
    calls of the main agent have no run.
    """

    name: str
    has_main_run: bool = False
    levels: Sequence[int] = (0, 1, 2, 1, 0)
    sessions: int = 1

    @property
    def capture(self) -> Capture:
        return capture.read(capture.PLACE / self.name / "delegation.jsonl.gz")

    def pieces(self) -> list[Request]:
        """Return the items of all requests, without the spans of opencode's database."""
        pieces = [piece for sent in self.capture.requests for piece in pieces_of(sent)]
        return [piece for piece in pieces if b"ai." in piece.body] if len(pieces) > 200 else pieces


FAMILIES = (
    Family("claude_code_agents"),
    Family("claude_code_traced_agents"),
    Family(CLAUDE_BEHIND_LITELLM),
    Family("copilot_cli_agents", has_main_run=True),
    Family("genai_openai_agents", has_main_run=True),
    Family("openai_agents", has_main_run=True),
    # each agent has a session, and one more call names the first one
    Family("opencode_agents", has_main_run=True, levels=(0, 0, 1, 0), sessions=2),
    Family("qwen_code_agents", levels=(0, 1, 0)),
)
# The prices of a token in dollars: input, output, cache read and cache write.
BILLIONTH = Decimal("1e-9")
CLAUDES = ("0.000003", "0.000015", "0.0000003", "0.00000375")
LITELLMS = ("0.000002", "0.000008", "0.0000005", "0.0000025")


def cost_of(call: Call, prices: Sequence[str]) -> Decimal:
    read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
    counts = ((call.input_tokens or 0) - read - written, call.output_tokens or 0, read, written)
    return sum((count * Decimal(price) for count, price in zip(counts, prices, strict=True)), Decimal(0))


# -- requests ------------------------------------------------------------------------------------------------


def pieces_of(sent: SentRequest) -> Iterator[Request]:
    """Yield each item as a request of its own. Points of counters stay together."""
    path = sent.path.rpartition("/")[2]
    if path == "litellm":
        yield from (Request(path, json.dumps([event]).encode()) for event in json.loads(sent.body))
        return
    is_json = "json" in sent.headers.get("content-type", "")
    if path == "metrics":
        yield Request(f"otlp/{path}", sent.body)
        return
    form = ExportTraceServiceRequest if path == "traces" else ExportLogsServiceRequest
    body = in_protobuf(json.loads(sent.body), form) if is_json else sent.body
    yield from (Request(f"otlp/{path}", piece) for piece in _items(path, form, body))


def _items(path: str, message: Any, body: bytes) -> Iterator[bytes]:
    of_resource, of_scope, items = (
        ("resource_spans", "scope_spans", "spans")
        if path == "traces"
        else ("resource_logs", "scope_logs", "log_records")
    )
    for resource in getattr(message.FromString(body), of_resource):
        for scope in getattr(resource, of_scope):
            for item in getattr(scope, items):
                alone = message()
                copied = getattr(alone, of_resource).add(resource=resource.resource)
                getattr(getattr(copied, of_scope).add(scope=scope.scope), items).append(item)
                yield alone.SerializeToString()


def joined(group: Sequence[Request]) -> Iterator[Request]:
    """Yield the pieces as a sender may batch them: those of one format in one request."""
    senders = {(piece.format, piece.bearer.name): piece for piece in group}
    for (format, name), first in senders.items():
        bodies = [piece.body for piece in group if (piece.format, piece.bearer.name) == (format, name)]
        if format == "litellm":
            bodies = [json.dumps([event for body in bodies for event in json.loads(body)]).encode()]
        elif not format.endswith("metrics"):
            bodies = [b"".join(bodies)]  # messages of protobuf that follow each other are one message
        yield from (replace(first, body=body) for body in bodies)


def dealt(pieces: Sequence[Request], chance: random.Random) -> list[Request]:
    """Return requests with all pieces in a random order. Some pieces arrive twice."""
    shuffled = chance.sample(pieces, len(pieces))
    shuffled += chance.sample(shuffled, len(shuffled) // 5)
    groups = cut(shuffled, [chance.random() < 0.2 for _ in shuffled])
    return [request for group in groups for request in joined(group)]


# -- the result ----------------------------------------------------------------------------------------------

Sums = tuple[int, int, int, Decimal]  # calls, input tokens, output tokens, cost


def _sums(row: CostRow) -> Sums:
    # the reporters state costs as floating-point numbers
    return row.calls, row.input_tokens, row.output_tokens, Decimal(row.cost).quantize(BILLIONTH)


@dataclass(frozen=True)
class Tree:
    """A tree of runs: the own and the aggregated sums of each level, from the main agent down."""

    own: list[Sums]
    aggregated: list[Sums]


def by_hand(family: Family, calls: Sequence[Call], prices: Sequence[str] | None) -> Tree:
    def sums(levels: Iterable[int]) -> Sums:
        made = [call for call, level in zip(calls, family.levels, strict=True) if level in levels]
        cost = sum((cost_of(call, prices) for call in made), Decimal(0)) if prices else Decimal(0)
        return (
            len(made),
            sum(call.input_tokens or 0 for call in made),
            sum(call.output_tokens or 0 for call in made),
            cost,
        )

    levels = range(max(family.levels) + 1)
    return Tree([sums([level]) for level in levels], [sums(levels[level:]) for level in levels])


async def tree_of(
    requests: Sequence[Request],
    family: Family,
    ledgers: Ledgers,
    directory: Path,
    *,
    pause: float,
    has_cost: bool = True,
) -> Tree:
    """Send the requests with a restart after each one, and read the tree from the totals."""
    records = await records_of(requests, directory, pause=pause)
    log = FakeLog()
    log.add(records, at=NOON)
    ledger = await ledgers.open(clock=FakeClock(NOON))
    await ledger.catch_up(log)
    by_run = CostQuery(**EVER, granularity=TOTAL, group_by=("run",))
    by_session = replace(by_run, group_by=("session",))
    queries = [
        by_run,
        replace(by_run, aggregated=True),
        replace(by_run, group_by=()),
        by_session,
        replace(by_session, aggregated=True),
    ]
    rows, with_started, [total], sessions, with_children = await ledger.costs_of_queries(queries)
    assert len(sessions) == family.sessions
    assert _sums(total) in map(_sums, with_children)  # the conversation includes the sessions of its agents
    own, aggregated = ({row.group[0]: _sums(row) for row in found} for found in (rows, with_started))
    lineage = await ledger.run_lineage(
        "run", [run for run in own if run is not None], 100, includes_runs_below=True
    )
    parents = {each.run: each.parent for each in lineage}
    if family.has_main_run:  # a workflow without calls may be above the main agent
        [main] = [run for run in own if run is not None and parents[run] not in own]
    else:
        assert (await ledger.costs(replace(by_run, include={"run": ("",)})))[0].calls == 2
        main, aggregated[None] = None, _sums(total)
    order = [main]
    while below := [run for run in own if run is not None and parents[run] == order[-1] and run not in order]:
        order += below
        assert len(below) == 1
    assert set(order) == own.keys()
    found = Tree([own[run] for run in order], [aggregated[run] for run in order])
    if has_cost:
        return found
    return Tree(*([(*sums[:3], Decimal(0)) for sums in level] for level in (found.own, found.aggregated)))


def prices_of(family: Family, captured: Capture) -> Sequence[str] | None:
    if captured.cost is None:
        return None
    return LITELLMS if family.name == CLAUDE_BEHIND_LITELLM else CLAUDES


# -- the orders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0.0, as_proof(LATE)], ids=["in time", "late"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_the_runs_are_one_tree(family: Family, pause: float, tmp_path: Path) -> None:
    """The runs form one tree: the sums of each run, own and aggregated, are those of the provider's calls."""
    captured, chance = family.capture, random.Random(f"{SEED} {family.name} {pause}")
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    prices = prices_of(family, captured)
    expected = by_hand(family, captured.told, prices)
    assert captured.cost in (None, expected.aggregated[0][3])
    pieces = family.pieces()
    for number in range(ORDERS):
        requests = dealt(pieces, chance)
        ledgers = Ledgers(MEMORY, tmp_path, None)
        directory = tmp_path / str(number)
        found = await tree_of(requests, family, ledgers, directory, pause=pause, has_cost=prices is not None)
        await ledgers.close()
        assert expected == found


def reporter_of(sent: SentRequest) -> str:
    path = sent.path.rpartition("/")[2]
    return f"{path} of LiteLLM" if path == "litellm" or b"litellm" in sent.body else f"{path} of Claude Code"


@pytest.mark.proof
@pytest.mark.parametrize("laptop", [SENDER, LAPTOP], ids=["key", "laptop"])
async def test_any_reporter_knows_the_tree(laptop: AuthenticatedKey, tmp_path: Path) -> None:
    """
    Each reporter and each group of reporters gives the same tree. LiteLLM's cost counts if LiteLLM reports. Claude Code
    may report under the key of a laptop.
    """
    family = next(family for family in FAMILIES if family.name == CLAUDE_BEHIND_LITELLM)
    sent = [each for each in family.capture.requests if not each.path.endswith("metrics")]
    reporters = {reporter_of(each) for each in sent}
    assert len(reporters) == 4
    groups = [group for size in range(1, 5) for group in combinations(sorted(reporters), size)]
    for group in groups if laptop is SENDER else groups[::4]:
        prices = LITELLMS if any("LiteLLM" in reporter for reporter in group) else CLAUDES
        pieces = [
            piece if "LiteLLM" in reporter_of(each) else replace(piece, bearer=laptop)
            for each in sent
            if reporter_of(each) in group
            for piece in pieces_of(each)
        ]
        requests = dealt(pieces, random.Random(f"{SEED} {group}"))
        ledgers = Ledgers(MEMORY, tmp_path, None)
        found = await tree_of(requests, family, ledgers, tmp_path / ", ".join(group), pause=0.0)
        await ledgers.close()
        assert by_hand(family, family.capture.told, prices) == found, group


@pytest.mark.parametrize("engine", part(ENGINES, every=2))
@pytest.mark.parametrize("family", part(FAMILIES[1:4], every=3), ids=lambda family: family.name)
async def test_each_engine_has_the_tree(
    family: Family, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The totals are read again from the disk."""
    captured = family.capture
    pieces = family.pieces()
    ledgers = Ledgers.of(engine, request, tmp_path)
    has_cost = captured.cost is not None
    found = await tree_of(pieces, family, ledgers, tmp_path / "spool", pause=0.0, has_cost=has_cost)
    await ledgers.close()
    assert by_hand(family, captured.told, prices_of(family, captured)) == found


@pytest.mark.parametrize(("family", "workflows"), [("openai_agents", 1), ("genai_openai_agents", 0)])
async def test_a_handoff_starts_no_run(family: str, workflows: int, tmp_path: Path) -> None:
    """The second agent goes on beside the first one. OpenInference states the workflow around both as a run."""
    captured = capture.read(capture.PLACE / family / "handoffs.jsonl.gz")
    gateway = Gateway(tmp_path)
    await gateway.start()
    for sent in captured.requests[::-1]:
        await gateway.take(Request(f"otlp/{sent.path.rpartition('/')[2]}", sent.body))
    records, _ = await gateway.closed()
    calls = [record for record in records if isinstance(record, Inference) and not record.shadow]
    assert [call.input_tokens for call in captured.told] == [call.input_tokens for call in calls]
    assert len({call.run for call in calls} - {None}) == 2
    assert len({call.parent_run for call in calls} - {None}) == workflows


async def test_calls_below_no_agent_stay_unplaced(tmp_path: Path) -> None:
    """If the spans of the agents never arrive, the calls have a session and no run. Their number is counted."""
    family = next(family for family in FAMILIES if family.name == "copilot_cli_agents")
    pieces = [
        piece
        for sent in family.capture.requests
        for piece in pieces_of(sent)
        if piece.format == "otlp/traces" and b"invoke_agent" not in piece.body
    ]
    gateway = Gateway(tmp_path)
    await gateway.start()
    for piece in random.Random(SEED).sample(pieces, len(pieces)):
        await gateway.take(piece)
    assert {("unplaced", "copilot_cli"): len(family.levels)} == {
        term: n for term, n in gateway.observed.terms.items() if "unplaced" in term
    }
    records, _ = await gateway.closed()
    calls = [record for record in records if isinstance(record, Inference)]
    assert [None] * len(family.levels) == [call.run for call in calls]
    assert len({call.session for call in calls} - {None}) == 1
