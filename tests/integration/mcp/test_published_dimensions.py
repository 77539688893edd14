from __future__ import annotations

import json
from decimal import Decimal

from gateway.money.allocation.language import parse_definition
from tests.integration.mcp.conftest import Assistant

OWNER = "User:Defined:Owner"
DEFINITION = b"""
Dimensions:
  Owner:
    Name: Who pays
    DefaultValue: Nobody
    Rules:
      - Type: Group
        Name: Old
        Conditions: [{Source: model, BeginsWith: gpt}]
"""


async def test_a_published_dimension(assistant: Assistant) -> None:
    """
    A published dimension is in the schemas, lists its values, groups and filters, and does not change the total.
    """
    await assistant.calls("gpt-4o", "o3")
    refused = await assistant.mistake("get_cost_data", group_by=[OWNER], date_range="today")
    assert f"there is no dimension {OWNER}" in refused
    total = (await assistant.content("get_cost_data", date_range="today"))["total"]["cost"]
    services = assistant.serving.app.services.operators
    services.money.published.put_in_force(
        parse_definition(DEFINITION, services.money.ledger.builtin_and_tag_dimensions()), version="1"
    )
    assert OWNER in (await assistant.ask("tools/list")).body.decode()
    listed = (await assistant.content("get_available_dimensions"))["dimensions"]
    [shown] = [each for each in listed if each["name"] == OWNER]
    assert shown["meaning"] == "Who pays, as the organization defines it"
    assert shown["value_count"] == 2
    found = await assistant.content("get_dimension_values", dimension=OWNER, date_range="today")
    assert {"Old", "Nobody"} == {each["value"] for each in found["values"]}
    grouped = await assistant.content("get_cost_data", group_by=[OWNER], date_range="today")
    assert Decimal(total) == sum(Decimal(row["cost"]) for row in grouped["rows"]), json.dumps(grouped)
    old = await assistant.content(
        "get_cost_data", filters={OWNER: ["Old"]}, group_by=["model"], date_range="today"
    )
    assert 1 == len(old["rows"])
    compared = await assistant.content(
        "compare_costs", group_by=[OWNER], date_range="today", baseline="yesterday"
    )
    # the running hour is not compared
    since_cut = Decimal(compared["compared"]["since_cut"]) if compared["compared"] else 0
    assert Decimal(total) == Decimal(compared["total"]["cost"]) + since_cut
