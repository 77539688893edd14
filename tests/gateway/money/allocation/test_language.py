"""The syntax of definitions, and the faults reported for invalid definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.faults import MAX_FAULTS
from gateway.core.yaml_text import MAX_DEPTH
from gateway.money.allocation.definition import AllocationDefinition, ElementRule, GroupBy
from gateway.money.allocation.language import (
    Fault,
    InvalidDefinition,
    Limits,
    join_definitions,
    parse_definition,
)
from tests.approved import approved

KNOWN = ("model", "provider", "team", "user", "api_key", "tag:service")

TEAM = """
Dimensions:
  Owner:
    Name: Who owns it
    Source: Tag:service
    DefaultValue: Nobody
    Rules:
      - Type: Group
        Name: Platform
        Conditions:
          - Equals: [search, on]
          - And:
              - Source: Team
                BeginsWith: plat
              - Not:
                  - Source: model
                    Contains: gpt
          - Source: user
            HasValue: false
      - Type: GroupBy
        Transforms:
          - Type: Normalize
  Short:
    Rules:
      - Type: GroupBy
        Source: User:Defined:Owner
        Transforms: [{Type: Split, Delimiter: "-", Index: 1}]
"""


def faults(text: str, **limits: int) -> list[Fault]:
    with pytest.raises(InvalidDefinition) as error:
        parse_definition(text.encode(), KNOWN, Limits(**limits))
    return error.value.faults


def rule(text: str) -> str:
    """Return a definition with one dimension D and `text` as its only rule."""
    return "Dimensions:\n  D:\n    Rules:\n      - " + text.strip().replace("\n", "\n        ")


def test_a_definition() -> None:
    """
    A definition is read into the ids that queries use. A rule without a source uses the source of its dimension.
    """
    parsed = parse_definition(TEAM.encode(), KNOWN)
    owner, short = parsed.dimensions
    assert owner.id == "User:Defined:Owner"
    assert owner.name == "Who owns it"
    assert owner.default == "Nobody"
    assert short.id == "User:Defined:Short"
    assert short.name == "Short"
    assert short.default == ""
    assert ("tag:service", "team", "model", "user") == owner.sources
    platform, rest = owner.rules
    assert isinstance(platform, ElementRule)
    assert isinstance(rest, GroupBy)
    assert ("Normalize",) == tuple(each.type for each in rest.source.transforms)
    assert ("User:Defined:Owner",) == short.sources


def test_an_empty_definition() -> None:
    assert () == tuple(parse_definition(b"Dimensions: {}", KNOWN).dimensions)


def test_every_scalar_is_text() -> None:
    """Values that YAML reads as booleans, numbers or dates are compared as the text in the file."""
    text = rule(
        "Type: Group\nName: 007\nConditions: [{Source: team, Equals: [on, 1e3, 2026-11-01, 0x1f, No]}]"
    )
    [group] = parse_definition(text.encode(), KNOWN).dimensions[0].rules
    assert isinstance(group, ElementRule)
    assert "007" == group.name
    assert ("on", "1e3", "2026-11-01", "0x1f", "No") == group.condition.conditions[0].values  # type: ignore[union-attr]


@pytest.mark.parametrize(("title", "text", "words"), approved(Path(__file__).with_name("faults.txt")))
def test_faults(title: str, text: str, words: list[str]) -> None:
    """Each fault has the path, the value and the remedy. `faults.txt` contains the approved texts."""
    messages = [f"{json.dumps(fault.path)} {json.dumps(fault.value)} {fault.error}" for fault in faults(text)]
    assert words == messages, title


def test_all_faults_at_once() -> None:
    """All faults of a definition are reported together, up to a hundred."""
    text = "Dimensions:\n" + "".join(f"  D{n}: {{Rules: [{{Type: GroupBy, Source: x}}]}}\n" for n in range(3))
    assert ["D0", "D1", "D2"] == [fault.path[1] for fault in faults(text)]
    rules = ", ".join(["x"] * (MAX_FAULTS + 1))
    assert MAX_FAULTS == len(faults(f"Dimensions: {{D: {{Rules: [{rules}]}}}}"))


def test_two_dimensions_of_one_name() -> None:
    """Two dimensions must not have the same name, because names are shown instead of ids."""
    one = "{Name: Same, Rules: [{Type: GroupBy, Source: team}]}"
    [fault] = faults(f"Dimensions: {{A: {one}, B: {one}}}")
    assert fault.value == "Same"
    assert fault.path == ["Dimensions", "B", "Name"]


def test_limits() -> None:
    """
    A definition exactly at a limit is accepted. A definition one above the limit is rejected, and the fault
    names the setting.
    """
    rule = "{Type: GroupBy, Source: team}"
    text = f"Dimensions: {{A: {{Rules: [{rule}, {rule}]}}, B: {{Rules: [{rule}]}}}}"
    edge = {"max_bytes": len(text), "max_dimensions": 2, "max_rules": 3}
    assert 2 == len(parse_definition(text.encode(), KNOWN, Limits(**edge)).dimensions)
    settings = {
        "max_bytes": "max_definition_bytes",
        "max_dimensions": "max_dimensions",
        "max_rules": "max_rules",
    }
    for name, setting in settings.items():
        [fault] = faults(text, **{**edge, name: edge[name] - 1})
        assert f"(allocation.{setting})" in fault.error


def test_depth() -> None:
    """Deeply nested definitions are rejected before the parser's stack overflows."""
    assert ["a definition must be a mapping with the key Dimensions"] == [
        fault.error for fault in faults("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    ]
    for text in ("[" * (MAX_DEPTH + 1), "[" * 100_000, "a: " + "{a: " * 30_000):
        [fault] = faults(text)
        assert f"nested at most {MAX_DEPTH} deep" in fault.error


def test_text_that_is_no_utf_8_or_not_to_be_read() -> None:
    assert "this is not YAML" in faults("a: \x07")[0].error
    with pytest.raises(InvalidDefinition, match="byte 2 is not"):
        parse_definition(b"a:\xff", KNOWN)


def test_namespaces_together() -> None:
    """Two namespaces must not define the same dimension. Their order is preserved."""
    one, two = (parse_definition(f"Dimensions: {{{key}: {{Rules: [{{Type: GroupBy, Source: team}}]}}}}".encode(), KNOWN)
                for key in ("A", "B"))  # fmt: skip
    assert (*one.dimensions, *two.dimensions) == tuple(join_definitions({"": one, "x": two}).dimensions)
    assert AllocationDefinition() == join_definitions({})
    with pytest.raises(InvalidDefinition, match="A belongs to the namespace x") as error:
        join_definitions({"x": one, "y": one})
    assert ["Dimensions", "A"] == error.value.faults[0].path
    with pytest.raises(InvalidDefinition, match=r"allocation\.max_dimensions"):
        join_definitions({"x": one, "y": two}, Limits(max_dimensions=1))


nodes = st.recursive(
    st.sampled_from(["team", "Group", "GroupBy", "a", "", "true", "{0}", "Tag:service"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["Type", "Name", "Source", "Sources", "CoalesceSources", "Transforms", "Rules", "Conditions",
                         "Format", "Equals", "HasValue", "And", "Or", "Not", "Delimiter", "Index", "Dimensions", "D"]),
        inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(root=nodes)
def test_whatever_is_nested_is_read_or_refused(root: object) -> None:
    """Any nesting of valid keywords gives a definition or faults, never another error."""
    for text in (json.dumps(root), json.dumps({"Dimensions": {"D": root}}), json.dumps({"Dimensions": root})):
        try:
            parse_definition(text.encode(), KNOWN)
        except InvalidDefinition as error:
            assert error.faults


@given(text=st.binary(max_size=60) | st.text("ab:{}[]&*!|>-'\"# \n\t%@,?", max_size=60).map(str.encode))
def test_whatever_is_written_is_read_or_refused(text: bytes) -> None:
    """Bytes that are no definition give faults, never another error."""
    with pytest.raises(InvalidDefinition):
        parse_definition(text, KNOWN)
