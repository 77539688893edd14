"""What a tool is: its declaration, what it is given, and what it answers."""

from __future__ import annotations

import copy
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from gateway.http.holders.operators import InstallationServices
from gateway.http.requests import named_holder
from gateway.http.services import OperatorServices
from gateway.http.visible import WHOLE
from gateway.money.costs.reader import CostReader
from spool.errors import Invalid
from spool.ledger.ledger import Ledger
from spool.ledger.queries import BILLED_DIMENSIONS
from spool.ledger.slices import SlicedLedger
from spool.registry.operators import Actor
from spool.registry.permission_sets import USE_ASSISTANTS
from spool.registry.roles import Rights

MAX_BYTES = 40_000  # of an answer, text and structured content together
ANSWERED, MISTAKEN = "answered", "mistaken"
# in place of the names, which are known only when the schema is asked for
_DIMENSION = "dimension of the ledger"

# The name of a dimension: the schema lists those of the ledger, and those of bills.
DimensionName = Annotated[str, msgspec.Meta(extra_json_schema={"$comment": _DIMENSION})]

Held = TypeVar("Held")
Input = TypeVar("Input", bound=msgspec.Struct)


class ToolInput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class ToolOutput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The structured content of an answer; everything that is in it is in the tool's output schema."""


@dataclass(slots=True, kw_only=True)
class Asking(Generic[Held]):
    """
    Who asks, and what the tools read: `ledger` is cut to the calls that `rights` show. `services` is the
    holder that a tool names, `Asking[MoneyServices]`, and `shared` what every tool may ask.

    `charge` counts one call of a tool, `count` any message; Refusal 429 over a limit. `told` hears which tool
    answered, with ANSWERED, or with MISTAKEN where it could only say what is wrong with the question.
    `step_up` is the challenge for a credential that is good for reading alone; None: it is good for all that
    the rights allow. `principal` is who asks, in a form that no other kind of asker has.
    """

    services: Held
    shared: InstallationServices
    whole_ledger: Ledger
    actor: Actor
    rights: Rights
    principal: str
    count: Callable[[], None]
    charge: Callable[[], Awaitable[None]]
    told: Callable[[str, str], None]
    step_up: str | None = None

    @property
    def reads(self) -> CostReader:
        """What who asks sees of costs."""
        return CostReader(
            whole=self.whole_ledger, require_registry=self.shared.require_registry, rights=self.rights
        )

    @property
    def ledger(self) -> SlicedLedger:
        return self.reads.ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """
    `text` is the answer for the model to read, `content` the same as exact values. `link` is the page of the
    console that shows the same, empty if there is none.
    """

    text: str
    content: ToolOutput
    link: str = ""

    @property
    def whole_text(self) -> str:
        """The text, with the link for who reads it."""
        return f"{self.text}\n\nIn the console: {self.link}" if self.link else self.text

    @property
    def size(self) -> int:
        return len(msgspec.json.encode(self.whole_text)) + len(msgspec.json.encode(self.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[Input]):
    """
    `run` raises Invalid, NotThere or a Refusal with words that say how to mend the question. A tool that
    `writes` leaves the same behind when it is called again with the same arguments; one that `replaces`
    writes over what was there. `needs` is the permission set that it takes, and `shows` says whether it is
    cut to the calls that a person may see (SLICED), or is offered only to who may see all of them (WHOLE). With
    `asks_cost_type` it sees to it that the roles show the money that the question is about, or it tells of none.
    """

    name: str
    title: str
    description: str
    takes: type[Input]
    gives: type[ToolOutput]
    run: Callable[[Input, Asking[Any]], Awaitable[ToolAnswer]]
    writes: bool = False
    replaces: bool = False
    needs: str = USE_ASSISTANTS
    shows: str = WHOLE
    asks_cost_type: bool = False

    def answer(self, given: Input, asking: Asking[OperatorServices]) -> Awaitable[ToolAnswer]:
        """Run the tool with the holder that it names."""
        held = asking.services.of(named_holder(self.run))
        return self.run(given, replace(asking, services=held))

    def is_for(self, rights: Rights) -> bool:
        """True if these rights open the tool."""
        if self.needs not in rights.permission_sets or (rights.hides_calls and not self.asks_cost_type):
            return False
        return self.shows != WHOLE or rights.slice.is_everything

    def shown(self, dimensions: Sequence[str]) -> Mapping[str, object]:
        """The tool as it is listed; names of dimensions are a closed set."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema(self.takes, dimensions),
            "outputSchema": schema(self.gives, dimensions),
            "annotations": self._hints,
        }

    @property
    def _hints(self) -> Mapping[str, bool]:
        if not self.writes:
            return {"readOnlyHint": True, "openWorldHint": False}
        return {
            "readOnlyHint": False,
            "destructiveHint": self.replaces,
            "idempotentHint": True,
            "openWorldHint": False,
        }


def schema(kind: type, dimensions: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of a struct, with what it refers to inside."""
    _, components = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    found = copy.deepcopy(components)
    own: dict[str, Any] = found.pop(kind.__name__)
    for each in (own, *found.values()):  # words for who reads the code
        each.pop("description", None)
        each.pop("title", None)
    if found:
        own["$defs"] = found
    _fill(own, dimensions)
    return own


def _fill(node: Any, dimensions: Sequence[str]) -> None:
    if isinstance(node, dict):
        if node.get("$comment") == _DIMENSION:
            del node["$comment"]
            node["enum"] = [*dimensions, *BILLED_DIMENSIONS]
        for inner in node.values():
            _fill(inner, dimensions)
    elif isinstance(node, list):
        for inner in node:
            _fill(inner, dimensions)


def fit(make: Callable[[int], ToolAnswer], rows: int) -> ToolAnswer:
    """The answer with as many rows as MAX_BYTES holds, of at most so many; `make` writes it with a number of rows."""
    answer = make(rows)
    while answer.size > MAX_BYTES and rows > 1:
        rows = rows * 3 // 4
        answer = make(rows)
    return answer


# -- cursors -------------------------------------------------------------------------------------------------


_DIGEST = 12


def sealed(asking: Asking[Any], tool: str, arguments: msgspec.Struct, shown: int) -> str:
    """The cursor after so many rows of the answer to these arguments."""
    return f"{shown}.{_seal(asking, tool, arguments, shown)}"


def opened(asking: Asking[Any], tool: str, arguments: msgspec.Struct, cursor: str | None) -> int:
    """Return how many rows were shown before. Invalid for a cursor of another question, or of somebody else."""
    if cursor is None:
        return 0
    number, _, seal = cursor.partition(".")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise Invalid("cursor is not one of ours")
    if not hmac.compare_digest(seal.encode(), _seal(asking, tool, arguments, int(number)).encode()):
        raise Invalid("cursor belongs to another question: repeat the same arguments with it")
    return int(number)


def _seal(asking: Asking[Any], tool: str, arguments: msgspec.Struct, shown: int) -> str:
    """`cursor` and `limit` of the arguments are left out: they may change from page to page."""
    rest = {
        name: value
        for name, value in msgspec.structs.asdict(arguments).items()
        if name not in ("cursor", "limit")
    }
    text = msgspec.json.encode([asking.principal, tool, shown, rest], order="deterministic")
    return blake2b(
        text, key=asking.shared.cursor_secret, digest_size=_DIGEST, person=b"mcp cursor"
    ).hexdigest()
