"""
The tool get_allocation_definitions: versions of allocation definitions, and their dimensions with all rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from gateway.core.faults import InvalidDefinition
from gateway.mcp.tool import (
    McpTool,
    ToolAnswer,
    ToolCallContext,
    ToolInput,
    ToolOutput,
    answer_within_limit,
    make_cursor,
    verify_cursor,
)
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_and_shorten,
    console_page_link,
    did_you_mean,
    format_cell,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.allocation.declared import DEFAULT, DEFAULT_WORD, AllocationTable, DefinitionVersion
from gateway.money.allocation.definition import PREFIX, AllocationDefinition, Dimension, allocation_rule_text
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.published_allocation import find_version
from spool.errors import Invalid
from spool.record import utc_iso

NAME = "get_allocation_definitions"
MOST = 200
MOST_VERSIONS = 20
_MOST_RULE, _MOST_RULE_CELL = 400, 200  # maximum characters of a rule in the result and in the table
_MOST_NAME = 100
_MOST_PROBLEM = 300


class AllocationQuestion(ToolInput):
    namespace: Annotated[
        str | None, msgspec.Meta(description=f"Only this namespace, such as {DEFAULT_WORD}; default: all")
    ] = None
    version: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        msgspec.Meta(description="Version number within the namespace; default: the version in force"),
    ] = None
    dimension: Annotated[
        str | None, msgspec.Meta(description="Only this dimension, by id, key or name; default: all")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of rules")] = 40
    cursor: Annotated[
        str | None, msgspec.Meta(description="next_cursor of an earlier call with the same arguments")
    ] = None


class VersionLine(ToolOutput):
    """A version. `problem` says why the newest version of a namespace is not in force."""

    namespace: str
    version: int
    is_in_force: bool
    dimension_count: int
    published_at: str
    published_by: str
    problem: str | None


class DefinedDimension(ToolOutput):
    """
    A dimension with its rules, in order.

    The first rule that matches a call gives the value, otherwise `default`; null is unknown. `first_rule` is
    the number of the first rule shown, from 1.
    """

    namespace: str
    version: int
    id: str
    name: str
    default: str | None
    rule_count: int
    first_rule: int
    rules: list[str]


class AllocationDefinitions(ToolOutput):
    """
    The result of the tool.

    `versions` are the newest versions of all namespaces, or all versions of the requested namespace, newest
    first. The counts include everything that matches, also on other pages.
    """

    versions: list[VersionLine]
    version_count: int
    dimensions: list[DefinedDimension]
    dimension_count: int
    rule_count: int
    truncated: bool
    next_cursor: str | None


# a rule of a definition: version, dimension, and index of the rule in the dimension
Ruled = tuple[DefinitionVersion, Dimension, int]


async def answer_allocation(
    arguments: AllocationQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    allocation_table = call_context.shared.require_registry().declared_table(AllocationTable)
    namespace = _find_requested_namespace(arguments, call_context)
    newest = allocation_table.versions_in_force()
    if arguments.version is not None:
        chosen = [find_version(call_context.services, namespace or DEFAULT, str(arguments.version))]
    else:
        chosen = [version for name, version in newest.items() if namespace in (None, name)]
    versions = [*newest.values()]
    if namespace is not None:
        versions = sorted(allocation_table.versions(namespace), key=lambda item: -item.number)
    shown = list(dict.fromkeys([*chosen, *versions])) if arguments.version is not None else versions
    problems: list[str] = []
    defined = [(version, await _read_definition(version, call_context, problems)) for version in chosen]
    wanted_dimensions = _find_requested_dimensions(
        arguments,
        [(version, dimension) for version, definition in defined for dimension in definition.dimensions],
    )
    rules = [
        (version, dimension, index)
        for version, dimension in wanted_dimensions
        for index in range(len(dimension.rules))
    ]
    first = verify_cursor(call_context, NAME, arguments, arguments.cursor)
    page_rules = rules[first : first + arguments.limit]
    lines = [_version_line(version, call_context) for version in shown[:MOST_VERSIONS]]

    def answer_with_first_rules(rule_count: int) -> ToolAnswer:
        end = first + min(rule_count, len(page_rules))
        content = AllocationDefinitions(
            versions=lines,
            version_count=len(shown),
            dimensions=_dimensions_of_rules(page_rules[:rule_count]),
            dimension_count=len(wanted_dimensions),
            rule_count=len(rules),
            truncated=end < len(rules) or len(lines) < len(shown),
            next_cursor=make_cursor(call_context, NAME, arguments, end) if end < len(rules) else None,
        )
        return ToolAnswer(
            text=_format_definitions(content, problems),
            content=content,
            link=console_page_link(call_context, "/allocation"),
        )

    return answer_within_limit(answer_with_first_rules, len(page_rules))


def _find_requested_namespace(
    arguments: AllocationQuestion, call_context: ToolCallContext[MoneyServices]
) -> str | None:
    if arguments.namespace is None:
        return DEFAULT if arguments.version is not None else None
    known = [
        namespace.id
        for namespace in call_context.shared.require_registry().declared_table(AllocationTable).all()
    ]
    if arguments.namespace in (DEFAULT, DEFAULT_WORD):
        return DEFAULT
    if arguments.namespace not in known:
        names = [DEFAULT_WORD, *known]
        hint = did_you_mean(arguments.namespace, names) or f": there are {', '.join(names[:MAX_TABLE_ROWS])}"
        raise Invalid(f"there is no namespace {remove_hidden_characters(arguments.namespace)}{hint}")
    return arguments.namespace


async def _read_definition(
    version: DefinitionVersion, call_context: ToolCallContext[MoneyServices], problems: list[str]
) -> AllocationDefinition:
    try:
        return await call_context.services.require_definition_publisher().parse_version(version)
    except InvalidDefinition as error:
        name = f"version {version.number} of {_shown_namespace(version.namespace)}"
        problems.append(clean_and_shorten(f"The rules of {name} cannot be read: {error}", _MOST_PROBLEM))
        return AllocationDefinition()


def _find_requested_dimensions(
    arguments: AllocationQuestion, dimensions: Sequence[tuple[DefinitionVersion, Dimension]]
) -> list[tuple[DefinitionVersion, Dimension]]:
    if arguments.dimension is None:
        return list(dimensions)
    names = (arguments.dimension, f"{PREFIX}{arguments.dimension}")
    chosen = [
        (version, dimension)
        for version, dimension in dimensions
        if dimension.id in names or dimension.name == arguments.dimension
    ]
    if not chosen:
        known = [name for _, dimension in dimensions for name in (dimension.id, dimension.name)]
        raise Invalid(
            f"no dimension {remove_hidden_characters(arguments.dimension)} is defined here"
            f"{did_you_mean(arguments.dimension, known)}"
        )
    return chosen


def _version_line(version: DefinitionVersion, call_context: ToolCallContext[MoneyServices]) -> VersionLine:
    newest = (
        call_context.shared.require_registry()
        .declared_table(AllocationTable)
        .versions_in_force()
        .get(version.namespace)
        == version
    )
    broken = (
        call_context.services.require_definition_publisher().broken_reason(version.namespace)
        if newest
        else None
    )
    return VersionLine(
        namespace=_shown_namespace(version.namespace),
        version=version.number,
        is_in_force=newest and broken is None,
        dimension_count=len(version.dimensions),
        published_at=utc_iso(version.created),
        published_by=clean_and_shorten(version.created_by, _MOST_NAME),
        problem=None if broken is None else clean_and_shorten(broken, _MOST_PROBLEM),
    )


def _dimensions_of_rules(rules: Sequence[Ruled]) -> list[DefinedDimension]:
    defined: list[DefinedDimension] = []
    for version, dimension, index in rules:
        if not defined or (defined[-1].namespace, defined[-1].id) != (
            _shown_namespace(version.namespace),
            dimension.id,
        ):
            defined.append(
                DefinedDimension(
                    namespace=_shown_namespace(version.namespace),
                    version=version.number,
                    id=dimension.id,
                    name=clean_and_shorten(dimension.name, _MOST_NAME),
                    default=clean_and_shorten(dimension.default, _MOST_NAME) or None,
                    rule_count=len(dimension.rules),
                    first_rule=index + 1,
                    rules=[],
                )
            )
        defined[-1].rules.append(clean_and_shorten(allocation_rule_text(dimension.rules[index]), _MOST_RULE))
    return defined


def _shown_namespace(namespace: str) -> str:
    return namespace or DEFAULT_WORD


def _format_definitions(content: AllocationDefinitions, problems: Sequence[str]) -> str:
    parts = [
        f"{content.dimension_count} dimensions with {content.rule_count} rules; the first rule that "
        "matches a call gives its value. To group or filter costs, use the id of a dimension in "
        "force."
    ]
    if not content.version_count:
        parts = ["No definition is published, so the organization has no dimensions of its own."]
    parts += problems
    if content.versions:
        rows = [
            [
                format_cell(version.namespace),
                str(version.version),
                "yes" if version.is_in_force else "no",
                str(version.dimension_count),
                version.published_at,
                format_cell(version.published_by),
            ]
            for version in content.versions
        ]
        parts.append(
            markdown_table(["namespace", "version", "in force", "dimensions", "published", "by"], rows)
        )
    rules = [
        [
            format_cell(dimension.id),
            format_cell(dimension.name),
            str(number),
            format_cell(rule, _MOST_RULE_CELL),
        ]
        for dimension in content.dimensions
        for number, rule in enumerate(dimension.rules, dimension.first_rule)
    ]
    if rules:
        parts.append(markdown_table(["dimension", "name", "rule", "gives"], rules[:MAX_TABLE_ROWS]))
    if len(rules) > MAX_TABLE_ROWS:
        parts.append(f"{len(rules) - MAX_TABLE_ROWS} more rules are in the structured content.")
    if content.next_cursor is not None:
        parts.append("For the next rules, repeat the call with cursor = next_cursor, or name one dimension.")
    if len(content.versions) < content.version_count:
        parts.append(
            f"{content.version_count - len(content.versions)} versions are left out; name a namespace "
            "to see them."
        )
    return "\n\n".join(parts)


TOOL = McpTool(
    name=NAME,
    title="Allocation definitions",
    description=(
        "How the organization's own dimensions (User:Defined:...) are defined: published definitions "
        "by namespace, their versions, and each dimension with its rules in words, in order. "
        "Default: everything in force, 40 rules."
    ),
    takes=AllocationQuestion,
    gives=AllocationDefinitions,
    run=answer_allocation,
)
