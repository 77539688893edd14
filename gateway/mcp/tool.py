"""MCP tools: declaration, inputs and results."""

from __future__ import annotations

import copy
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from gateway.core.visibility import WHOLE
from gateway.http.requests import services_type_of_handler
from gateway.money.costs.reader import CostReader
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.services import OperatorServices
from spool.errors import Invalid
from spool.ledger.dimensions import BILLED_DIMENSIONS
from spool.ledger.ledger import Ledger
from spool.ledger.slices import SlicedLedger
from spool.registry.operators import Actor
from spool.registry.permission_sets import USE_ASSISTANTS
from spool.registry.roles import Rights

MAX_BYTES = 40_000  # maximum bytes of a result's text and structured content together
ANSWERED, MISTAKEN = "answered", "mistaken"
# Placeholder in a schema. The names of the dimensions replace it when a client requests the schema.
_DIMENSION = "dimension of the ledger"

# Name of a dimension. In the schema, this type lists all dimensions of calls and of bills.
DimensionName = Annotated[str, msgspec.Meta(extra_json_schema={"$comment": _DIMENSION})]

Held = TypeVar("Held")
Input = TypeVar("Input", bound=msgspec.Struct)


class ToolInput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The base class of a tool's arguments."""


class ToolOutput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The base class of a tool's structured content. The output schema lists all its fields."""


@dataclass(slots=True, kw_only=True)
class ToolCallContext(Generic[Held]):
    """
    The caller and the data of a tool call.

    `services` is the holder that the tool names, as in `ToolCallContext[MoneyServices]`; `shared` is
    available to every tool. `charge` counts a tool call and `count` a message; both refuse with 429 above a
    limit. `told` records the tool and its outcome: ANSWERED, or MISTAKEN if the arguments were wrong.
    `step_up` is the challenge for a credential that only allows reading, or None. `principal` identifies the
    caller; different kinds of callers never share one.
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
    def cost_reader(self) -> CostReader:
        return CostReader(
            whole=self.whole_ledger, require_registry=self.shared.require_registry, rights=self.rights
        )

    @property
    def visible_ledger(self) -> SlicedLedger:
        return self.cost_reader.ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """
    The result of a tool. `text` is for the model, and `content` has the same as exact values. `link` opens
    the same data in the console, or is "".
    """

    text: str
    content: ToolOutput
    link: str = ""

    @property
    def text_with_link(self) -> str:
        return f"{self.text}\n\nIn the console: {self.link}" if self.link else self.text

    @property
    def encoded_bytes(self) -> int:
        return len(msgspec.json.encode(self.text_with_link)) + len(msgspec.json.encode(self.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool(Generic[Input]):
    """
    A tool and its rules.

    `run` raises Invalid, NotThere or a Refusal with a message that says how to correct the arguments. A
    repeated call with the same arguments has no further effect, also for a tool that `writes`; one that
    `replaces` overwrites earlier data. `needs` is the required permission set. `shows` is SLICED if the
    result contains only calls that the person may see, or WHOLE if the tool needs access to all calls. A tool
    with `asks_cost_type` checks itself that the caller's roles show the costs in its result, or returns none.
    """

    name: str
    title: str
    description: str
    takes: type[Input]
    gives: type[ToolOutput]
    run: Callable[[Input, ToolCallContext[Any]], Awaitable[ToolAnswer]]
    writes: bool = False
    replaces: bool = False
    needs: str = USE_ASSISTANTS
    shows: str = WHOLE
    asks_cost_type: bool = False

    def run_with_services(
        self, arguments: Input, call_context: ToolCallContext[OperatorServices]
    ) -> Awaitable[ToolAnswer]:
        held = call_context.services.services_of_type(services_type_of_handler(self.run))
        return self.run(arguments, replace(call_context, services=held))

    def is_permitted(self, rights: Rights) -> bool:
        if self.needs not in rights.permission_sets or (rights.hides_calls and not self.asks_cost_type):
            return False
        return self.shows != WHOLE or rights.slice.is_everything

    def tools_list_entry(self, dimensions: Sequence[str]) -> Mapping[str, object]:
        """
        Return the tool's entry in the tools list. Its schemas list the dimension names as an enumeration.
        """
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self_contained_schema(self.takes, dimensions),
            "outputSchema": self_contained_schema(self.gives, dimensions),
            "annotations": self._annotations,
        }

    @property
    def _annotations(self) -> Mapping[str, bool]:
        if not self.writes:
            return {"readOnlyHint": True, "openWorldHint": False}
        return {
            "readOnlyHint": False,
            "destructiveHint": self.replaces,
            "idempotentHint": True,
            "openWorldHint": False,
        }


def self_contained_schema(kind: type, dimensions: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of a struct, with all referenced schemas inside."""
    _, components = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    definitions = copy.deepcopy(components)
    own_schema: dict[str, Any] = definitions.pop(kind.__name__)
    # Remove these texts, because they come from docstrings, which are written for developers.
    for definition in (own_schema, *definitions.values()):
        definition.pop("description", None)
        definition.pop("title", None)
    if definitions:
        own_schema["$defs"] = definitions
    _fill_dimension_enumerations(own_schema, dimensions)
    return own_schema


def _fill_dimension_enumerations(node: Any, dimensions: Sequence[str]) -> None:
    if isinstance(node, dict):
        if node.get("$comment") == _DIMENSION:
            del node["$comment"]
            node["enum"] = [*dimensions, *BILLED_DIMENSIONS]
        for inner in node.values():
            _fill_dimension_enumerations(inner, dimensions)
    elif isinstance(node, list):
        for inner in node:
            _fill_dimension_enumerations(inner, dimensions)


def answer_within_limit(make: Callable[[int], ToolAnswer], rows: int) -> ToolAnswer:
    """
    Return the largest result with at most `rows` rows that fits into MAX_BYTES. `make` writes a number of rows.
    """
    answer = make(rows)
    while answer.encoded_bytes > MAX_BYTES and rows > 1:
        rows = rows * 3 // 4
        answer = make(rows)
    return answer


# -- cursors -------------------------------------------------------------------------------------------------


_DIGEST = 12


def make_cursor(
    call_context: ToolCallContext[Any], tool: str, arguments: msgspec.Struct, shown_count: int
) -> str:
    """Return a cursor for the rows after the first `shown_count` of the result for these arguments."""
    return f"{shown_count}.{_cursor_mac(call_context, tool, arguments, shown_count)}"


def verify_cursor(
    call_context: ToolCallContext[Any], tool: str, arguments: msgspec.Struct, cursor: str | None
) -> int:
    """
    Return the number of rows shown before. Raises Invalid for a cursor of other arguments or another caller.
    """
    if cursor is None:
        return 0
    number, _, seal = cursor.partition(".")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise Invalid("cursor is invalid")
    if not hmac.compare_digest(
        seal.encode(), _cursor_mac(call_context, tool, arguments, int(number)).encode()
    ):
        raise Invalid(
            "cursor belongs to other arguments; pass the same arguments as in the call that returned it"
        )
    return int(number)


def _cursor_mac(
    call_context: ToolCallContext[Any], tool: str, arguments: msgspec.Struct, shown_count: int
) -> str:
    rest = {
        name: value
        for name, value in msgspec.structs.asdict(arguments).items()
        if name not in ("cursor", "limit")
    }
    text = msgspec.json.encode([call_context.principal, tool, shown_count, rest], order="deterministic")
    return blake2b(
        text, key=call_context.shared.cursor_secret, digest_size=_DIGEST, person=b"mcp cursor"
    ).hexdigest()
