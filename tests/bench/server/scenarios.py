"""
Loads by name.

    [KIND-]ITEMSxCLIENTS[-json|-grpc][-gzip|-zstd][-NUMBERkeys][@RECORDS a second][+BACKLOG][-seedSEED]
    drain-BACKLOG, start-BACKLOG, idle

- `100x8`: requests of 100 spans by 8 clients. Each client sends its next request when it has the response.
- `10x32@5000`: 5,000 spans per second over 32 clients.
- `100x8+1M`: the upstream is down and a million records wait for it. `+0`: no records wait.
- `drain-1M`: a million records are delivered to an upstream that responds after 20 ms.
- `start-1M`: how long the server takes until it is ready.
- `trees-98x8`: agents, their calls and the HTTP requests of the calls.
- `mixed-24x8`: captured requests of real clients in turn. A request counts as 24 spans.
- `unfamiliar-100x8`: spans with their own sets of names, models, people and tags. The table shows their seed.
- `fleet-100x8`: LiteLLM logs of 500 teams, 5,000 users and 200 models, with calls from 300 days.
- `real-100x8`: spans of 20 alternating models, 200 services, 12 teams and 5,000 users; each request is a conversation.
- `conversations-100x8`: the same with a new conversation per span.
- `real-100x8-200keys`: requests under 200 keys in turn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.bench.load.traces import CALLS_OF_TREE, SPANS_OF_TREE

NAME = re.compile(
    r"(?:(?P<kind>litellm|fleet|events|heartbeats|counters|trees|mixed|unfamiliar|real|conversations)-)?(?P<items>\d+)x(?P<clients>\d+)"
    r"(?:-(?P<form>json|grpc))?(?:-(?P<compression>gzip|zstd))?(?:-(?P<keys>\d+)keys)?"
    r"(?:@(?P<rate>\d+))?(?:\+(?P<backlog>\d+[kM]?))?(?:-seed(?P<seed>\d+))?"
)
STATE = re.compile(r"(?P<kind>drain|start)-(?P<backlog>\d+[kM]?)|(?P<idle>idle)")
# the load generator sends these kinds as spans
SPANS = None, "trees", "mixed", "unfamiliar", "real", "conversations"
FORWARDED = ("spans", "litellm", "fleet", "trees", "unfamiliar", "real", "conversations")
SEED = random.randrange(2**32)  # of unfamiliar spans in all rounds of this process, unless a name has another
MULTIPLES = {"k": 1000, "M": 1_000_000}

MAIN = (
    "100x8", "10x32", "1x64", "10x32@5000", "1x64@1000", "100x8-gzip", "100x8-json", "100x8-grpc",
    "unfamiliar-100x8", "unfamiliar-10x32", "unfamiliar-1x64", "real-100x8", "real-10x32", "real-1x64",
    "litellm-512x4", "events-100x8", "counters-100x8", "heartbeats-1x64",
    "100x8+0", "100x8+200k", "drain-200k", "start-200k", "idle",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """
    One load. `rate` is records per second; 0 sends as fast as the server responds. `backlog` is the number of
    records that wait for an upstream that is down; with None the upstream is up. The records belong to this
    number of `users`, `devices` or `series`, and started `age_s` ago. Unfamiliar spans are drawn by `seed`.
    """

    name: str
    kind: str = "spans"
    items: int = 1
    clients: int = 1
    form: str = "protobuf"
    compression: str = ""
    rate: int = 0
    backlog: int | None = None
    users: int = 50
    devices: int = 256
    series: int = 100
    age_s: int = 0
    keys: int = 1
    seed: int = 0

    @property
    def is_grpc(self) -> bool:
        return self.form == "grpc"

    @property
    def is_forwarded(self) -> bool:
        """Return whether records are delivered to the upstream during the load."""
        return self.kind in FORWARDED and self.backlog is None

    @property
    def calls(self) -> int:
        """
        Return the records per request. A tree has fewer records than spans, because only its calls count.
        """
        return self.items // SPANS_OF_TREE * CALLS_OF_TREE if self.kind == "trees" else self.items

    @property
    def has_yardstick(self) -> bool:
        return self.kind in ("spans", "unfamiliar", "real", "conversations") and self.backlog is None


def of_name(name: str) -> Scenario:
    """
    Parse a name into its scenario. Raises ValueError if the name is invalid or gRPC does not support it.
    """
    if state := STATE.fullmatch(name):
        return Scenario(name=name, kind=state["kind"] or "idle", backlog=_count(state["backlog"] or "0"))
    if name.startswith("unfamiliar") and "-seed" not in name:
        name = f"{name}-seed{SEED}"
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name} is not a scenario: see --help")
    given = found.groupdict()
    scenario = Scenario(
        name=name,
        kind=given["kind"] or "spans",
        items=int(given["items"]),
        clients=int(given["clients"]),
        form=given["form"] or ("protobuf" if given["kind"] in SPANS else "json"),
        compression=given["compression"] or "",
        rate=int(given["rate"] or 0),
        backlog=None if given["backlog"] is None else _count(given["backlog"]),
        keys=int(given["keys"] or 1),
        seed=int(given["seed"] or 0),
    )
    if scenario.is_grpc and (scenario.compression == "zstd" or scenario.kind != "spans"):
        raise ValueError(f"{name} is not a scenario: gRPC takes spans, plain or gzip")
    least = 1 if scenario.kind in ("unfamiliar", "real", "conversations") else SPANS_OF_TREE
    if scenario.kind in SPANS and (scenario.form != "protobuf" or scenario.items < least):
        raise ValueError(
            f"{name} is not a scenario: trees are sent as protobuf, {SPANS_OF_TREE} spans or more"
        )
    if not scenario.items or not scenario.clients:
        raise ValueError(f"{name} is not a scenario: there is nothing to send")
    return scenario


def _count(text: str) -> int:
    return int(text.rstrip("kM")) * MULTIPLES.get(text[-1], 1)


def matrix() -> Iterator[str]:
    """Yield every combination of request size, clients, encoding, compression and transport."""
    for items in (1, 10, 100, 1000):
        for clients in (1, 8, 64, 256):
            for form in ("", "-json", "-grpc"):
                for compression in ("", "-gzip") if form == "-grpc" else ("", "-gzip", "-zstd"):
                    yield f"{items}x{clients}{form}{compression}"


def listed() -> list[str]:
    """List the prepared scenarios. Any other valid name is a scenario as well."""
    more = (
        "100x8+1M",
        "100x8+10M",
        "drain-1M",
        "drain-10M",
        "start-1M",
        "start-10M",
        "litellm-512x1",
        "events-1x64",
        "events-1000x8",
        "trees-98x8",
        "mixed-24x8",
        "fleet-100x8",
        "conversations-100x8",
        "real-100x8-200keys",
        "real-10x32-200keys",
        "real-1x64-200keys",
    )
    return list(dict.fromkeys((*MAIN, *more, *matrix())))


def chosen(wishes: list[str]) -> list[Scenario]:
    """
    Return scenarios by name, by pattern (`100x*`), or by the words main and matrix. The default is main.
    """
    names: list[str] = []
    for wish in wishes or ["main"]:
        if wish == "main":
            names += MAIN
        elif wish == "matrix":
            names += matrix()
        elif "*" in wish or "?" in wish:
            names += (name for name in listed() if fnmatchcase(name, wish))
        else:
            names.append(wish)
    return [of_name(name) for name in dict.fromkeys(names)]
