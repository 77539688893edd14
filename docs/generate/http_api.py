"""
The HTTP API as Markdown pages, one for each group of addresses.

Parameters and fields come from the OpenAPI document that `/openapi.json` returns. Examples come from
fields, or from `examples.json`: requests and answers of a real server, shortened.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from docs.generate import api_tables as tables
from docs.generate.field_examples import composed
from docs.generate.repeats import ShownAt, ShownTable
from gateway.core.paths import OPERATOR_API
from gateway.http.openapi import openapi_document
from gateway.operations.list import RESOURCES
from gateway.service.addresses.table import ADDRESSES

_SHORT = 100  # characters of an example that is shown again
WIDTH = 96  # maximum columns of a line of JSON
_STORED = json.loads((Path(__file__).parent / "examples.json").read_text())
EXAMPLES: Mapping[str, Any] = {**_STORED, **dict(composed(ADDRESSES, stored=_STORED))}
# left out on the other pages, because the index states it once
_IGNORES_KEY = "The Idempotency-Key header is ignored."
_OPERATOR_OPTIONS = ["--unix-socket tollhouse-data/operator.sock"]
_KEY_OPTION = '-H "Authorization: $TOLLHOUSE_KEY"'
_JSON = "application/json"
_Operation = tuple[str, str, Mapping[str, Any]]  # method, path, and its description in the OpenAPI document
_LIST = EXAMPLES["GET /console/api/scheduled-reports"]["answer"]


class ApiPage(NamedTuple):
    """
    A page. It has the operations below one of `paths`. An operation that fits several pages is on the
    first of them.
    """

    name: str
    title: str
    about: str
    paths: tuple[str, ...]


def _operators(*paths: str) -> tuple[str, ...]:
    return tuple(OPERATOR_API + path for path in paths)


def _pages_for_keys() -> Iterator[ApiPage]:
    """Yield a page for each listed resource that keys manage."""
    for name, modules in RESOURCES.items():
        if modules.has_keys:
            words = name.replace("-", " ")
            yield ApiPage(name, words.capitalize(), f"Manage {words}.", (f"/v2/{name}",))


PAGES = (
    ApiPage(
        "telemetry",
        "Send telemetry",
        "Send AI calls. The fields of a body are those of its format: see [Connect](../connect/index.md).",
        (
            "/v1/traces",
            "/v1/metrics",
            "/v1/logs",
            "/v1development",
            "/v1/ai-telemetry",
            "/api",
            "/opentelemetry",
        ),
    ),
    ApiPage("devices", "Devices", "Enroll a device and report that it is alive.", ("/v1/ai-control-plane",)),
    ApiPage(
        "events",
        "Usage events and unit cost",
        "Send usage events and unit-cost records, and read them back.",
        ("/v1/events", "/unit-cost"),
    ),
    ApiPage(
        "containers",
        "Containers",
        "Send container metrics and manage clusters.",
        ("/v1/container-metrics", "/v2/container"),
    ),
    ApiPage("connections", "Billing connections", "Upload the bill of a provider.", ("/v2/connections",)),
    ApiPage("costs", "Costs", "Query costs, dimensions and tags.", ("/v2/billing",)),
    ApiPage("insights", "Insights", "Read and manage insights.", ("/v2/insights",)),
    ApiPage("recommendations", "Recommendations", "Read and manage recommendations.", ("/v2/optimize",)),
    ApiPage("views", "Views", "Manage saved filters.", ("/v2/views",)),
    *_pages_for_keys(),
    ApiPage("access", "Roles", "Manage roles of people.", ("/v2/access-control",)),
    ApiPage("allocation", "Allocation", "Manage dimensions of your own.", ("/v2/{group}",)),
    ApiPage("assistants", "Assistants", "Connect assistants over MCP.", ("/mcp", "/.well-known")),
    ApiPage(
        "server",
        "Server",
        "Check the health of a server and describe its API.",
        ("/livez", "/readyz", "/metrics", "/openapi.json"),
    ),
    ApiPage(
        "operator-people",
        "People",
        "Sign in, and manage accounts, roles and the audit list.",
        _operators(
            "/session",
            "/sessions",
            "/console-links",
            "/sign-in-ways",
            "/oidc",
            "/oidc-callback",
            "/oidc-logout",
            "/operators",
            "/roles",
            "/people",
            "/erasures",
            "/permission-sets",
            "/audit",
        ),
    ),
    ApiPage("operator-keys", "Keys", "Manage API keys.", _operators("/keys", "/scopes")),
    ApiPage(
        "operator-devices",
        "Devices and clusters",
        "Manage devices, clusters and files of container metrics.",
        _operators(
            "/devices", "/fleet", "/unenrolled", "/clusters", "/container-metrics", "/container-files"
        ),
    ),
    ApiPage(
        "operator-records",
        "Records",
        "Look at records, and check that all are counted.",
        _operators(
            "/changes",
            "/records",
            "/served",
            "/rates",
            "/tail",
            "/receipts",
            "/books",
            "/verify",
            "/ignored",
            "/conflicts",
            "/streams",
            "/events",
            "/event-types",
            "/unknown",
        ),
    ),
    ApiPage(
        "operator-delivery",
        "Delivery",
        "Look at routes, and decide about rejected records.",
        _operators("/routes", "/deliveries", "/replay", "/lake-repairs", "/dead", "/partial-refusals"),
    ),
    ApiPage(
        "operator-server",
        "Server operations",
        "Reload, back up, and look at the running server.",
        _operators(
            "/status",
            "/clock",
            "/configuration",
            "/search",
            "/files",
            "/apply",
            "/release",
            "/reload",
            "/forwarding-tests",
            "/backup",
            "/demo",
            "/mcp",
            "/assistant-tools",
        ),
    ),
    ApiPage(
        "operator-connections",
        "Billing connections of operators",
        "Manage billing connections and their files.",
        _operators("/billing", "/connections"),
    ),
    ApiPage(
        "operator-bills",
        "Provider bills",
        "Import provider bills, reconcile them, and close months.",
        _operators(
            "/statements",
            "/statement-imports",
            "/statement-pulls",
            "/statement-uploads",
            "/reconciliation",
            "/enforcers",
            "/enforcer-limits",
            "/billed-invoices",
            "/month-closing",
            "/closed-months",
        ),
    ),
    ApiPage(
        "operator-costs",
        "Reports",
        "Report, compare and forecast costs, and recalculate the totals.",
        _operators(
            "/ledger",
            "/overview",
            "/report",
            "/focus",
            "/comparison",
            "/forecast",
            "/what-if",
            "/group-costs",
            "/marks",
            "/work",
        ),
    ),
    ApiPage(
        "operator-views",
        "Views and budgets of operators",
        "Manage views and budgets.",
        _operators("/views", "/budgets"),
    ),
    ApiPage(
        "operator-plans",
        "Plans, contracts, prices, links, annotations and scheduled reports",
        "Manage plans of assistants, contracts with providers, prices, links of units of work, annotations and "
        "scheduled reports.",
        _operators(
            # a page above has some of these resources, and a page below has this one
            *(f"/{resource}" for resource in RESOURCES if resource != "allocation"),
            "/plan-costs",
            "/contract-costs",
        ),
    ),
    ApiPage(
        "operator-allocation",
        "Allocation of operators",
        "Manage dimensions of your own.",
        _operators("/allocation"),
    ),
    ApiPage(
        "operator-insights",
        "Insights and notifications",
        "Read insights, and manage notifications and channels.",
        _operators("/insights", "/attention", "/notifications", "/notification-channels", "/channel-names"),
    ),
    ApiPage(
        "operator-recommendations",
        "Recommendations of operators",
        "Read and manage recommendations.",
        _operators(
            "/recommendations", "/recommendation-types", "/recommendation-dimensions", "/recommendation-check"
        ),
    ),
)

_INDEX = """# HTTP API

This page lists every operation of the HTTP API, for programmers who send telemetry, query costs or automate
Tollhouse. Each group has a page with parameters, fields and an example for every operation. A running Tollhouse
describes the same API at `/openapi.json`.

- The examples are requests to a real server and its answers. Set `TOLLHOUSE_URL` and `TOLLHOUSE_KEY` first, as in the
  [quick start](../quick-start.md). Answers are shortened: lists show their first item, and long texts end with "...".
- `{id}` and `{name}` in a path are the id and the name of the item.
- A body is JSON unless the operation names other media types.

## Authorization

- **For senders and key holders**: send only the key in the `Authorization` header, without a scheme:
  `Authorization: th_...`. Each operation names the scope that it requires. `tollhouse keys create` creates a key
  with scopes.
- **For operators**: use the socket in the data directory, or the session of a person who signed in. The header
  `X-Tollhouse-As: ada@example.com` names you in the audit list. Each operation names the
  [permission set](../people/roles.md#permission-sets) that it requires.

## Errors

An error has a type and a message that says what to do:

```json
{"error": {"type": "invalid_parameter", "message": "limit must be a whole number from 1 to 1000"}}
```

| status | for senders and key holders | for operators |
|---|---|---|
@@STATUSES@@

Repeat a request after 429, 500 and 503. After another 4xx it fails again until you change the request, the key or
the resource.

## Lists

A list returns at most `limit` items, in the order of `sort_key` and `sort_order` (`asc` or `desc`). A filter may
repeat, and then an item that matches any of its values is returned. Next to its items, a list returns:

```json
@@LIST@@
```

- To get the next page, send `pagination.cursor.next_cursor` as `cursor`. `previous_cursor` is the page before.
- `filtering.available` lists the filters with their values, and `sorting.available` the sort keys.

The examples of lists leave these three fields out.

## Idempotency keys

Operations that name the header `Idempotency-Key` accept a text of your choice that identifies the body:

- If you send the same body under the same key again, you get the first answer and nothing changes.
- If you send another body under this key, you get 422 `idempotency_key_reused` and nothing is stored.
- Bodies are compared after decompression. A key belongs to one API key and one path.
- Tollhouse remembers a key for `spool.duplicate_window` and within `spool.duplicate_ids`, across restarts and on
  every gateway.

All other operations ignore the header.
"""


def pages() -> Mapping[str, str]:
    """Return the text of each page by its file name under docs/reference."""
    found = openapi_document(ADDRESSES, version="")
    operations: dict[ApiPage, list[_Operation]] = {page: [] for page in PAGES}
    for path, methods in found["paths"].items():
        page = next((page for page in PAGES if _belongs(path, page)), None)
        if page is None:
            raise ValueError(f"no page of docs/generate/http_api.py has {path}; add its first part to a page")
        operations[page] += [(method.upper(), path, operation) for method, operation in methods.items()]
    schemas, shown = found["components"]["schemas"], ShownTable()
    return {
        "http-api.md": _index(operations),
        **{f"api/{page.name}.md": _page(page, rows, schemas, shown) for page, rows in operations.items()},
    }


def _belongs(path: str, page: ApiPage) -> bool:
    return any(path == start or path.startswith((start + "/", start + "{")) for start in page.paths)


def _index(operations: Mapping[ApiPage, Sequence[_Operation]]) -> str:
    text = _INDEX.replace("@@STATUSES@@", "\n".join(_statuses(operations)))
    text = text.replace("@@LIST@@", _json({name: _LIST[name] for name in tables.LIST_PARTS}))
    for title, is_operator in (("For senders and key holders", False), ("For operators", True)):
        text += f"\n## {title}\n\n| operation | what it does |\n|---|---|\n"
        for page, rows in operations.items():
            if page.name.startswith("operator") == is_operator:
                text += f"| **[{page.title}](api/{page.name}.md)** | {page.about} |\n"
                for method, path, operation in rows:
                    address = f"api/{page.name}.md#{_anchor(method, path)}"
                    text += f"| [`{method} {path}`]({address}) | {operation['summary']} |\n"
    return text


def _statuses(operations: Mapping[ApiPage, Sequence[_Operation]]) -> Iterator[str]:
    """Yield a row for each error status: its meanings for key holders, then for operators."""
    meanings: dict[str, tuple[dict[str, None], dict[str, None]]] = {}  # dictionaries are used as ordered sets
    for _, path, operation in (row for rows in operations.values() for row in rows):
        for status, answer in operation["responses"].items():
            if status >= "4" and answer["description"] != "Done":
                of_status = meanings.setdefault(status, ({}, {}))
                of_status[path.startswith(OPERATOR_API)][answer["description"]] = None
    for status, (of_keys, of_operators) in sorted(meanings.items()):
        yield f"| {status} | {'. Or: '.join(of_keys)} | {'. Or: '.join(of_operators)} |"


def _anchor(method: str, path: str) -> str:
    kept = "".join(c for c in f"{method} {path}".lower() if c.isalnum() or c in " -_")
    return "-".join(kept.split())


def _page(page: ApiPage, rows: Sequence[_Operation], schemas: Mapping[str, Any], shown: ShownTable) -> str:
    [(usual, _)] = Counter(_errors(found) for _, _, found in rows).most_common(1)
    about = f"{tables.from_page(page.about)} The [HTTP API](../http-api.md) explains authorization, errors and lists."
    context = tables.FieldContext(schemas, shown, ShownAt(page.name))
    operations = "".join(_operation(*row, context, usual) for row in rows)
    return f"# {page.title}\n\n{about}\n\nErrors, unless listed otherwise: {usual}.\n" + operations


def _errors(found: Mapping[str, Any]) -> str:
    return ", ".join(sorted(status for status in found["responses"] if status >= "4"))


def _operation(
    method: str, path: str, found: Mapping[str, Any], context: tables.FieldContext, usual_errors: str
) -> str:
    note = found.get("description", "").replace(_IGNORES_KEY, "")
    at = ShownAt(context.at.page, f"{method} {path}", _anchor(method, path))
    context = context._replace(item=tables.item_of(path), at=at)
    lines = [f"\n## {method} {path}", "", f"{found['summary']}. {note}".rstrip(), ""]
    lines += _access(found)
    lines += tables.parameters(path, found["parameters"], context)
    body = found.get("requestBody")
    if body:
        media = list(body["content"])
        if media != [_JSON]:
            lines += ["", "Body: " + " or ".join(f"`{name}`" for name in media) + "."]
        schema = body["content"].get(_JSON, body["content"][media[0]])["schema"]
        lines += tables.table("body field", schema, context, is_body=True)
    for status, answer in found["responses"].items():
        if status.startswith("2") and _JSON in answer.get("content", {}):
            schema = answer["content"][_JSON]["schema"]
            lines += tables.table(f"answer ({status})", schema, context, is_body=False)
    lines += _example(method, path, context)
    if _errors(found) not in ("", usual_errors):
        lines += ["", f"Errors: {_errors(found)}."]
    return "\n".join(lines) + "\n"


def _access(found: Mapping[str, Any]) -> Iterator[str]:
    needed = sorted({word for way in found["security"] for words in way.values() for word in words})
    ways = sorted({name for way in found["security"] for name in way})
    if needed:
        yield f"Requires {' or '.join(f'`{word}`' for word in needed)}."
    else:
        yield f"Requires {'a key' if 'key' in ways else 'a session' if ways else 'no key'}."


def _example(method: str, path: str, context: tables.FieldContext) -> Iterator[str]:
    example = EXAMPLES.get(f"{method} {path}")
    if example is None:
        return  # a test reports the missing example
    yield from ("", "```bash", curl(method, path, example), "```", "")
    if "answer" not in example:
        yield f"Answer: {example['status']}, without a body."
        return
    answer = example["answer"]
    if isinstance(answer, dict):
        answer = {name: value for name, value in answer.items() if name not in tables.LIST_PARTS}
    like = context.shown.example_like(answer, context.at) if len(_json(answer)) > _SHORT else None
    if like:
        yield f"Answer ({example['status']}): as in the example of {like.link_from(context.at.page)}."
        return
    text, language = (answer, "text") if isinstance(answer, str) else (_json(answer), "json")
    yield from (f"Answer ({example['status']}):", "", f"```{language}", text, "```")


def curl(method: str, path: str, example: Mapping[str, Any]) -> str:
    """Return a shell command that sends the request of `example`. A text body that begins with @ names a file."""
    if path.startswith(OPERATOR_API) and not example.get("is_open"):
        options, base = _OPERATOR_OPTIONS, "http://localhost"
    else:
        options, base = ([] if example.get("is_open") else [_KEY_OPTION]), "$TOLLHOUSE_URL"
    verb = "" if method == "GET" else f"-X {method} "
    parts = [f'curl -sS {verb}"{base}{example["path"]}"', *options]
    parts += [f"-H '{header}'" for header in example.get("headers", ())]
    if "body" in example:
        body = example["body"]
        text = body if isinstance(body, str) else _json(body)
        quoted = text.replace("'", "'\\''")
        parts.append(f"-H 'Content-Type: {example.get('media', _JSON)}'")
        parts.append(f"--data-binary '{quoted}'" if text.startswith("@") else f"-d '{quoted}'")
    return " ".join(parts)


def _json(value: Any, indent: str = "") -> str:
    """Return JSON in which each object or list that fits is on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_json(item, inner)}" for name, item in value.items()]
        first, last = "{", "}"
    else:
        parts = [_json(item, inner) for item in value]
        first, last = "[", "]"
    return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{last}"
