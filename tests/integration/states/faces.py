"""The faces of an installation: what its console, commands, metrics and assistants say about the same thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.mcp.protocol import MODERN
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE
from tests.integration.mcp.conftest import META

Row = Mapping[str, Any]


def causes(house: Tollhouse) -> dict[str, Row]:
    """Return what the console's Overview lists, by title."""
    return {cause["title"]: cause for cause in house.asked("/attention")["attention"]["causes"]}


def insights(house: Tollhouse) -> dict[str, Row]:
    """Run the detectors, and return the open insights by title."""
    house.json("insights", "check")
    found = house.asked("/insights?limit=100")["insights"]
    return {insight["title"]: insight for insight in found if insight["status"] == "new"}


def diagnoses(house: Tollhouse) -> list[tuple[str, str, str]]:
    """Return status, subject and words of each line of `tollhouse doctor`."""
    found = json.loads(house.attempt("doctor", "--json").stdout)["doctor"]["found"]
    return [(one["status"], one["about"], one["words"]) for one in found]


def check(house: Tollhouse) -> tuple[int, Row]:
    """Return the exit code of `tollhouse check`, and its response."""
    done = house.attempt("check", "--json")
    response: Row = json.loads(done.stdout)
    return done.returncode, response


def metrics(house: Tollhouse) -> Mapping[str, float]:
    text = KEEP_ALIVE.request("GET", f"{house.url}/metrics").data.decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def resources(house: Tollhouse, kind: str, key: str) -> Mapping[str, Row]:
    """Return the rows that an assistant with this key sees, by name."""
    tool = "get_resource_metadata"
    asked = {"name": tool, "arguments": {"kind": kind, "limit": 100}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    headers = {"Authorization": key, "Content-Type": "application/json", "MCP-Protocol-Version": MODERN,
               "Mcp-Method": "tools/call", "Mcp-Name": tool}  # fmt: skip
    answer = KEEP_ALIVE.request("POST", f"{house.url}/mcp", body=json.dumps(body), headers=headers)
    rows = json.loads(answer.data)["result"]["structuredContent"]["rows"]
    return {row["name"]: row for row in rows}


def send(house: Tollhouse, key: str, body: bytes = b"{}") -> tuple[int, str]:
    """Send an export with a key, without calls by default; return the status and the response."""
    headers = {"Authorization": key, "Content-Type": "application/json"}
    answer = KEEP_ALIVE.request("POST", f"{house.url}/v1/traces", body=body, headers=headers)
    return answer.status, answer.data.decode()
