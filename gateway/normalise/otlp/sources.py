"""
Which product sends under an instrumentation scope or a resource: the marks that all three signals share.

What attributes of an item say comes first; that is the dialects' own knowledge.
"""

from __future__ import annotations

from functools import lru_cache

from gateway.normalise.otlp.decoding.model import Resource, Scope

OTEL = "otel"  # the semantic conventions, from nobody in particular

_SCOPES = {
    "ai": "vercel_ai",
    "gen_ai": "vercel_ai",
    "langfuse-sdk": "langfuse",
    "pydantic-ai": "pydantic_ai",
    "gcp.vertex.agent": "google_adk",
    "copilot-chat": "copilot_chat",
    "github.copilot": "copilot_cli",
    "gemini-cli": "gemini_cli",
    "qwen-code": "qwen_code",
    "cline": "cline",
    "litellm": "litellm",
    "vllm": "vllm",
    "agentgateway": "agentgateway",
    "kong": "kong",
    "bifrost": "bifrost",
    "openlit": "openlit",
    "openrouter": "openrouter",
}
_SCOPE_BEGINNINGS = (
    ("com.anthropic.claude_code", "claude_code"),
    ("codex", "codex"),
    ("org.springframework", "spring_ai"),
    ("io.micrometer", "spring_ai"),
    ("Microsoft.SemanticKernel", "semantic_kernel"),
    ("strands.", "strands"),
    ("envoyproxy/ai-gateway", "envoy_ai_gateway"),
    ("kong.", "kong"),
    ("kong-", "kong"),
    ("litellm.", "litellm"),
    ("vllm.", "vllm"),
)
# Micrometer's own exporter names no scope.
_SDKS = {"openlit": "openlit", "bifrost": "bifrost", "io.micrometer": "spring_ai"}
_SERVICES = {
    "claude-code": "claude_code",
    "claude-code-desktop": "claude_code",
    "gemini-cli": "gemini_cli",
    "qwen-code": "qwen_code",
    "copilot-chat": "copilot_chat",
    "github-copilot": "copilot_cli",
    "cline": "cline",
    "codex_cli_rs": "codex",
    "codex_exec": "codex",
    "kong": "kong",
    "litellm": "litellm",
    "openrouter": "openrouter",
}
_LONGEST = 64  # longer than any name above


def source_of(resource: Resource, scope: Scope) -> str:
    """The product by scope, SDK or service name; `otel` when none of them tells."""
    sdk = resource.attributes.get("telemetry.sdk.name")
    if isinstance(sdk, str) and sdk in _SDKS:
        return _SDKS[sdk]
    if (source := _by_scope(scope.name[:_LONGEST])) is not None:
        return source
    service = resource.attributes.get("service.name")
    return _SERVICES.get(service, OTEL) if isinstance(service, str) else OTEL


@lru_cache(maxsize=1024)
def _by_scope(name: str) -> str | None:
    if (source := _SCOPES.get(name)) is not None:
        return source
    return next((source for beginning, source in _SCOPE_BEGINNINGS if name.startswith(beginning)), None)
