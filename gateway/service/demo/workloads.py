"""The workloads of an invented organization: who calls which model, and for what."""

from __future__ import annotations

from dataclasses import dataclass

PEOPLE = ("ada", "ben", "chen", "dina", "emre", "faye", "goran", "hana", "ivo", "june", "kofi", "lena")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """
    A kind of calls of the invented organization. Tokens are typical values per call, and `turns` is the
    number of calls per session. `share` is its part of all calls.
    """

    source: str
    provider: str
    model: str
    team: str
    service: str | None = None
    users: tuple[str, ...] = ()
    share: float
    input_tokens: int
    output_tokens: int
    turns: int = 1
    caches: bool = False  # whether later turns of a session read the earlier turns from the provider's cache
    reports: bool = False  # whether the source reports a cost of its own
    office: bool = False  # whether it is office work, which has few calls at night and on weekends
    device: bool = False  # whether the workload runs on enrolled laptops
    response_ids: bool = True  # whether the source reports the provider's id of the response


def _assistant_workload(
    source: str, provider: str, model: str, share: float, *, people: tuple[str, ...], reports: bool = False
) -> Workload:
    return Workload(
        source=source,
        provider=provider,
        model=model,
        team="engineering",
        users=people,
        share=share,
        input_tokens=9000,
        output_tokens=600,
        turns=8,
        caches=True,
        office=True,
        device=True,
        reports=reports,
    )


def _service_workload(
    source: str,
    provider: str,
    model: str,
    team: str,
    service: str,
    share: float,
    input_tokens: int,
    output_tokens: int,
    *,
    reports: bool = False,
) -> Workload:
    return Workload(
        source=source,
        provider=provider,
        model=model,
        team=team,
        service=service,
        share=share,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        reports=reports,
    )


CLAUDE_CODE = _assistant_workload(
    "claude_code", "anthropic", "claude-sonnet-5-5", 12, people=PEOPLE[:6], reports=True
)
SUPPORT = _service_workload(
    "litellm", "openai", "gpt-4.1", "support", "support-bot", 14, 1800, 260, reports=True
)
SEARCH = _service_workload("otel", "openai", "gpt-4.1", "search", "answers", 12, 2600, 320)
SUMMARIES = _service_workload(
    "helicone", "openai", "gpt-4.1", "docs", "summaries", 10, 5200, 420, reports=True
)
INVOICES = _service_workload("pydantic_ai", "openai", "gpt-4.1-mini", "finance", "invoices", 2, 2100, 240)
TUTOR = Workload(
    source="langfuse",
    provider="anthropic",
    model="claude-sonnet-5-5",
    team="learning",
    service="tutor",
    users=PEOPLE[:8],
    share=8,
    input_tokens=12000,
    output_tokens=380,
    turns=6,
    caches=True,
)

WORKLOADS = (
    CLAUDE_CODE,
    SUPPORT,
    SEARCH,
    SUMMARIES,
    TUTOR,
    _assistant_workload("codex", "openai", "gpt-4.1", 5, people=PEOPLE[6:10]),
    _assistant_workload("gemini_cli", "gcp.gemini", "gemini-2.5-pro", 4, people=PEOPLE[4:9]),
    _assistant_workload("qwen_code", "openai", "gpt-4.1-mini", 1, people=PEOPLE[:3]),
    _assistant_workload("cline", "anthropic", "claude-sonnet-5-5", 2, people=PEOPLE[3:7]),
    _assistant_workload("copilot_chat", "openai", "gpt-4.1", 2, people=PEOPLE[:5]),
    _assistant_workload("copilot_cli", "openai", "gpt-4.1", 1, people=PEOPLE[5:8]),
    _service_workload(
        "openrouter", "anthropic", "claude-haiku-5-5", "research", "reviews", 3, 2400, 350, reports=True
    ),
    _service_workload("portkey", "openai", "gpt-4o-mini", "support", "triage", 4, 900, 60, reports=True),
    _service_workload("openinference", "openai", "gpt-4o-mini", "search", "ranking", 3, 1500, 40),
    _service_workload("openllmetry", "openai", "gpt-4.1", "docs", "translate", 2, 1100, 900),
    _service_workload("openlit", "mistral_ai", "mistral-large", "research", "extract", 1, 2000, 300),
    _service_workload("vercel_ai", "openai", "gpt-4.1-mini", "web", "composer", 3, 1300, 420),
    _service_workload("langsmith", "anthropic", "claude-haiku-5-5", "research", "agents", 2, 3800, 300),
    _service_workload("mlflow", "openai", "gpt-4o-mini", "research", "evaluation", 1, 1200, 120),
    INVOICES,
    _service_workload("strands", "anthropic", "claude-haiku-5-5", "finance", "ledger-notes", 1, 1900, 260),
    _service_workload("google_adk", "gcp.gemini", "gemini-2.5-flash", "marketing", "campaigns", 2, 1600, 500),
    _service_workload("semantic_kernel", "openai", "gpt-4.1", "sales", "proposals", 1, 2200, 700),
    _service_workload("spring_ai", "openai", "gpt-4o-mini", "sales", "crm", 1, 800, 150),
    _service_workload("azure_ai", "openai", "gpt-4.1", "legal", "clauses", 1, 4200, 300),
    _service_workload("cloudflare", "openai", "gpt-4o-mini", "web", "edge", 2, 700, 90, reports=True),
    _service_workload("kong", "openai", "gpt-4o-mini", "platform", "gateway", 2, 1000, 110, reports=True),
    _service_workload(
        "bifrost", "anthropic", "claude-haiku-5-5", "platform", "router", 1, 1400, 180, reports=True
    ),
    _service_workload("agentgateway", "openai", "gpt-4.1-mini", "platform", "tools", 1, 1700, 130),
    _service_workload("vllm", "openai", "gpt-4o-mini", "data", "labels", 1, 1200, 30),
)
