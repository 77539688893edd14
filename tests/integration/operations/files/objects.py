"""
Objects of every kind with every field, and texts that YAML programs misread: quotes, `yes`, `1e3`, spaces.

A new field needs a value here; test_fields.py names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.operations.files.kinds import KINDS
from gateway.operations.files.text import write, write_fields

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
    "filter": {"team": ["", "yes", "1e3", " x", "\u2028", "null", "a\nb"], "!model": ["0x10"]},
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
MAPPING = {
    "event_type": "order: paid",
    "stream": "orders",
    "value": "1",
    "element": "on",
    "type": "metric",
    "granularity": "HOURLY",
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

OBJECTS: Mapping[str, list[dict[str, Any]]] = {
    "channels": [HOOK, MAIL],
    "roles": [ROLE],
    "keys": [KEY, MANAGED_KEY],
    "prices": [PRICE],
    "event-mappings": [MAPPING],
    "views": [PLAIN_VIEW, FULL_VIEW],
    "budgets": [CALLS, BUDGET],
    "plans": [PLAN],
    "scheduled-reports": [REPORT],
}


def files_of(
    objects: Mapping[str, list[dict[str, Any]]] = OBJECTS, *, name: str = "platform"
) -> dict[str, str]:
    """Return the files with these objects, as an export writes them."""
    files = {"tollhouse.yaml": write_fields({"set": name, "format": 1})}
    for kind, ones in objects.items():
        order = (*KINDS()[kind].fields, "secret_file")
        ordered = [{field: one[field] for field in order if field in one} for one in ones]
        if ordered:
            files[f"{kind}.yaml"] = write(sorted(ordered, key=KINDS()[kind].key_of))
    return files
