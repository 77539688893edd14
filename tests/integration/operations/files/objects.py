"""
Objects of every kind with every field, and texts that YAML programs misread: quotes, `yes`, `1e3`, spaces.

A field without a value here has its example. If that is the default, test_fields.py names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from docs.generate.field_examples import body_example
from gateway.operations.files.kinds import ObjectFileHandler, file_kinds
from gateway.operations.files.text import format_fields, format_objects

SECRETS = {"mail secret": "pass-word", "hook": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "sender": "s" * 40}

MAIL = {
    "name": "on-call",
    "type": "email",
    "server": "smtp.example.com:465",
    "tls": "implicit",
    "username": "1e3",
    "sender": "tollhouse@example.com",
    "to": ["ada@example.com", "bob@example.com"],
    "insights": "critical",
    "categories": ["spend"],
    "quiet_hours": "22:00-07:00",
    "digest": "08:00",
    "time_zone": "Europe/Berlin",
    "secret_file": "mail secret",
}
HOOK = {"name": "hook", "type": "webhook", "url": "https://hooks.example.com/a#b: c", "secret_file": "hook"}
FULL_VIEW = {
    "name": 'yes "quoted" # no: comment',
    "filter": {"team": ["", "yes", "1e3", " x", "\u2028", "null", "a\nb"], "!User:Defined:Owner": ["0x10"]},
    "principal_dimension": "team",
    "connections": {
        "email": {"addresses": ["ada@example.com"], "include_all_organizers": True},
        "slack": [{"id": "C1", "name": "~"}],
        "notify": ["on-call"],
    },
    "anomalies": {"enabled": False, "threshold_type": "Percent", "threshold_value": 20},
    "granularity": "daily",
    "group_by": ["team", "model"],
    "cost_type": "metered_cost",
    "range": "last_30d",
}
PLAIN_VIEW = {"name": "no", "filter": {}, "principal_dimension": "model"}
ROLE = {
    "name": "- leads",
    "data_access": "limited",
    "description": "'single' and {braces}",
    "filters": [{"dimension": "team", "values": ["", "2026-11-01"], "mode": "except"}],
    "cost_types": ["real_cost"],
    "permission_sets": ["view_costs"],
    "members": ["bob@example.com"],
    "groups": ["*finance", "on"],
}
BUDGET = {
    "name": "@monthly",
    "view": 'yes "quoted" # no: comment',
    "planned_limits": {"weekly": {"2026-11-02": {"amount": "7.50"}}},
    "alerts": {"80": "Y", "100": "N"},
    "cost_type": "metered_cost",
    "granularity": "weekly",
    "default_amount": "1000",
    "currency": "EUR",
    "time_zone": "Europe/Berlin",
    "per": "team",
    "forecast_alerts": {"100": "Y"},
    "channels": ["hook"],
    "silence": {"until": "2027-01-01T00:00:00+00:00", "reason": "null"},
}
CALLS = {"name": "calls", "view": "no", "default_amount": "5", "measure": "calls"}
PLAN = {
    "name": "%plan",
    "view": "no",
    "fee": "25",
    "included": "40",
    "unit": "credits",
    "is_pooled": True,
    "cycle_day": 7,
    "overage_price": "1",
    "currency": "EUR",
    "credit_value": "0.04",
    "billed_by": "github",
    "seats": [{"user": "ada@example.com", "since": "2026-10-01", "until": "2026-12-01", "team": "off"}],
}
CAPACITY = {
    "kind": "capacity",
    "models": ["gpt-4o*", "yes"],
    "unit": "ptu",
    "number": "1000",
    "price": "0.50",
    "per": "hour",
}
CONTRACT = {
    "name": "- deal",
    "provider": "azure.ai.openai",
    "since": "2026-11-01",
    "until": "2027-11-01",
    "currency": "EUR",
    "terms": [
        CAPACITY,
        {"kind": "discount", "tier": "standard", "percent": "12.5"},
        {"kind": "tier_price", "tier": "flex", "factor": "0.5"},
        {"kind": "tier_price", "tier": "batch", "input": "1", "output": "2"},
        {"kind": "priority", "tier": "priority", "amount": "100", "per": "month"},
        {"kind": "allowance", "tokens": "1000", "kinds": ["input"], "per": "day"},
        {"kind": "fee", "percent": "3", "amount": "10", "per": "month"},
    ],
}
REPORT = {
    "name": "weekly: all",
    "view": "no",
    "channels": ["on-call"],
    "every": "month",
    "day": 3,
    "at": "09:30",
    "time_zone": "Europe/Berlin",
    "people": ["ada@example.com"],
}
PRICE = {
    "model": "acme*",
    "provider": "true",
    "tier": "batch",
    "since": "2026-11-20",
    "input": "2.00",
    "output": "8.00",
    "cache_read": "0.2",
    "cache_write": "3",
    "cache_write_1h": "4",
}
KEY = {
    "name": "=sender",
    "scopes": ["ai-telemetry-ingest:ingest-ai-telemetry"],
    "description": "ends with a colon:",
    "labels": {"team": "yes"},
    "expires_at": "2027-06-01T00:00:00.000Z",
    "secret_file": "sender",
}
MANAGED_KEY = {"name": "managed", "use_cases": ["Send AI Telemetry"]}
TOKEN = {
    "name": "laptops",
    "expires_at": "2027-06-01T00:00:00.000Z",
    "uses": 5,
    "labels": {"office": "no"},
    "serial": "1e3",
    "per_hour": 40,
}
CLUSTER: dict[str, Any] = {
    "name": "no",
    "account": "0123",
    "region": "on",
    "display_name": "yes: the mill",
    "labels": {"team": "1e3"},
    "config": {
        "scrape_interval": "60s",
        "labels": {"pods": ["app", "1"]},
        "x_own": [1, -2.5, True, None, "true", "1", "0x10", " x", {"no": []}, {}],
    },
}
CONNECTION = {
    "name": "null",
    "cloud_provider": "yes: MongoDB",
    "expected_ingest_rate": 1.5,
    "is_enabled": False,
    "s3_bucket_info": {
        "bucket_name": "bills",
        "bucket_path": " on # path",
        "cloud_account_id": "012345678901",
    },
    "connection_id": "1e3",
    "in_costs": True,
    "upstream_connection_id": "0x10",
}
NAMESPACE = {"name": "Team 'A'", "description": "off: it is", "id": "no"}
NAMED_BY_ID = {"id": "yes"}
DEFINITION = """
Dimensions:   # as it was written
  Owner:
    Name: 'Who owns it'
    Source: team
    Rules:
      - {Type: Group, Name: on, Conditions: [{Equals: "1e3"}]}
"""
DEFINITIONS = [
    {"namespace": "default", "definition": DEFINITION},
    {"namespace": "no", "definition": "Dimensions: {}\n"},
]
TYPE: dict[str, Any] = {"type": "batch", "enabled": False, "least_savings": "12.50", "least_share": "0"}
TOOL = {"name": "set_org_context", "enabled": False}
NOTES = {"text": '- yes: "search" owns 1e3\n  # no comment'}

_BY_HAND: Mapping[str, list[dict[str, Any]]] = {
    "channels": [HOOK, MAIL],
    "roles": [ROLE],
    "keys": [KEY, MANAGED_KEY],
    "prices": [PRICE],
    "views": [PLAIN_VIEW, FULL_VIEW],
    "budgets": [CALLS, BUDGET],
    "plans": [PLAN],
    "contracts": [CONTRACT],
    "scheduled-reports": [REPORT],
    "enrolment-tokens": [TOKEN],
    "clusters": [CLUSTER],
    "connections": [CONNECTION],
    "namespaces": [NAMESPACE, NAMED_BY_ID],
    "allocation": DEFINITIONS,
    "recommendation-types": [TYPE],
    "assistant-tools": [TOOL],
    "organization": [NOTES],
}


def _with_examples(name: str, file_handler: ObjectFileHandler) -> list[dict[str, Any]]:
    """Return the objects of a kind. Fields that none of them states are added to the last one, as examples."""
    *others, last = _BY_HAND.get(name, [{}])
    stated = {field for one in (*others, last) for field in one}
    examples = {
        field: value
        for field, value in body_example(file_handler.new).items()
        if field in file_handler.field_names and field not in stated
    }
    for field in examples.keys() & file_handler.files.refers.keys():
        target = file_handler.files.refers[field]
        word = _BY_HAND[target][0][file_kinds()[target].files.key[0]]
        examples[field] = [word] if isinstance(examples[field], list) else word
    return [*others, {**last, **examples}]


OBJECTS = {name: _with_examples(name, kind) for name, kind in file_kinds().items()}


# Texts that YAML programs read as something else, or that need quotes.
HOSTILE = (
    "yes", "No", "on", "Off", "true", "null", "~", "1e3", "0x10", "1_000", "12:30:45", "2026-11-01", ".inf", "<<",
    "=", "- item", "? key", "a: b", "a #b", "#b", "{a: b}", "[1]", "*alias", "&anchor", "!tag", "%dir", "@at", "`tick",
    "|", ">", " leading", "trailing ", '"quoted"', "it's", "back\\slash", "e\u0301 \u00fc", "\U0001f600", "end:",
)  # fmt: skip


def generated(rng: Random) -> dict[str, list[dict[str, Any]]]:
    """Return objects of every kind with names and texts from HOSTILE, beside OBJECTS."""

    def some(count: int) -> list[str]:
        return rng.sample(HOSTILE, count)

    def named(count: int, **fields: Any) -> list[dict[str, Any]]:
        return [{"name": f"{text} {rng.choice(HOSTILE)}".strip(), **fields} for text in some(count)]

    def described(ones: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**one, "description": rng.choice(HOSTILE)} for one in ones]

    views = [
        {**PLAIN_VIEW, "name": text, "filter": {"team": some(3), "!model": some(2)}, "group_by": ["team"]}
        for text in some(12)
        if text.casefold() != PLAIN_VIEW["name"]
    ]
    names = [view["name"] for view in views]
    made = {
        "channels": [{**HOOK, "name": text} for text in HOSTILE if re.fullmatch(r"\w[\w-]*", text, re.ASCII)],
        "roles": described(named(8, data_access="full", permission_sets=["view_costs"])),
        "keys": described(named(6, use_cases=["Send AI Telemetry"], labels={"team": rng.choice(HOSTILE)})),
        "views": views,
        "budgets": [{**one, "view": rng.choice(names)} for one in named(12, default_amount="1")],
        "plans": [{**one, "view": rng.choice(names)} for one in named(6, fee="25")],
        "scheduled-reports": [
            {**one, "view": rng.choice(names)} for one in named(6, channels=["on-call"], every="month", day=3)
        ],
        "enrolment-tokens": named(
            4, expires_at="2027-06-01T00:00:00.000Z", labels={"a": rng.choice(HOSTILE)}
        ),
        "clusters": [
            {
                **one,
                "account": rng.choice(HOSTILE),
                "config": {"x_own": some(3), f"x_{one['name']}": rng.choice(HOSTILE)},
            }
            for one in named(6)
        ],
        "connections": [
            {**one, "connection_id": f"c{number}"}
            for number, one in enumerate(named(6, cloud_provider=rng.choice(HOSTILE)))
        ],
        "namespaces": [{**one, "id": f"n{number}"} for number, one in enumerate(described(named(4)))],
    }
    return {kind: [*ones, *made.get(kind, [])] for kind, ones in OBJECTS.items()}


def files_of(
    objects: Mapping[str, list[dict[str, Any]]] = OBJECTS, *, name: str = "platform"
) -> dict[str, str]:
    """Return the files with these objects, as an export writes them."""
    files = {"tollhouse.yaml": format_fields({"set": name, "format": 1})}
    for kind, ones in objects.items():
        if file_kinds()[kind].files.is_folder:
            files |= {f"{kind}/{one['namespace']}.yaml": one["definition"] for one in ones}
            continue
        order = (*file_kinds()[kind].field_names, "secret_file")
        ordered = [{field: one[field] for field in order if field in one} for one in ones]
        if ordered:
            files[f"{kind}.yaml"] = format_objects(
                sorted(ordered, key=file_kinds()[kind].object_key_of_fields)
            )
    return files
