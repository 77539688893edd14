"""A fake Kubernetes API server: objects can be read and changed within a Role, over TLS with a token."""

from __future__ import annotations

import copy
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.integration.certificates import Certificates

TOKEN = "token-of-the-service-account"
NAMESPACE = "metrics-agent"
MERGE_PATCH = "application/merge-patch+json"


class KubernetesApi:
    """
    The fake server. `rules` are those of a Role, `objects` are keyed by resource and name, and `asked` lists
    each request as verb and name.
    """

    def __init__(self, rules: Sequence[Mapping[str, Any]]) -> None:
        self._rules = rules
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refuses = ""  # a verb; the server refuses requests with it
        self.url = ""

    def put(self, resource: str, name: str, **fields: Any) -> None:
        """Add or replace an object without checking rights."""
        before = self.objects.get((resource, name), {"metadata": {"name": name, "resourceVersion": "0"}})
        merged = merge(before, fields)
        merged["metadata"]["resourceVersion"] = str(int(before["metadata"]["resourceVersion"]) + 1)
        self.objects[resource, name] = merged

    async def answer(self, request: web.Request) -> web.Response:
        verb = {"GET": "get", "PATCH": "patch"}.get(request.method, "other")
        group, resource, name = (
            request.match_info.get("group", ""),
            request.match_info["resource"],
            request.match_info["name"],
        )
        self.asked.append(f"{verb} {resource}/{name}")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return refusal(401, "Unauthorized")
        is_own = request.match_info["namespace"] == NAMESPACE
        if not is_own or not self._may(group, verb, resource, name):
            return refusal(403, f'{resource} "{name}" is forbidden: cannot {verb}')
        if (resource, name) not in self.objects:
            return refusal(404, f'{resource} "{name}" not found')
        if self.refuses == verb:
            return refusal(422, "admission webhook denied the request:\nno changes today")
        if verb == "patch":
            if request.content_type != MERGE_PATCH:
                return refusal(415, "unsupported media type")
            changed = await request.json()
            wanted = changed.get("metadata", {}).pop("resourceVersion", None)
            if wanted not in (None, self.objects[resource, name]["metadata"]["resourceVersion"]):
                return refusal(409, "the object has been modified")
            self.put(resource, name, **changed)
        return web.json_response(self.objects[resource, name])

    def _may(self, group: str, verb: str, resource: str, name: str) -> bool:
        return any(
            group in rule["apiGroups"]
            and verb in rule["verbs"]
            and resource in rule["resources"]
            and name in rule["resourceNames"]
            for rule in self._rules
        )


def merge(before: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    merged = dict(before) if isinstance(before, dict) else {}
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def refusal(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


@asynccontextmanager
async def kubernetes_api(
    rules: Sequence[Mapping[str, Any]], certificates: Certificates
) -> AsyncIterator[KubernetesApi]:
    api = KubernetesApi(rules)
    app = web.Application()
    for base in ("/api/v1", "/apis/{group}/v1"):
        app.router.add_route("*", f"{base}/namespaces/{{namespace}}/{{resource}}/{{name}}", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    api.url = f"https://127.0.0.1:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()
