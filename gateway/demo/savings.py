"""
What can be planted for recommendations: a workload of its own for each type, in which every call could cost less.
"""

from __future__ import annotations

from gateway.demo.workloads import Workload
from spool.record import Inference


def _planted(
    provider: str, model: str, service: str, input_tokens: int, output_tokens: int = 800, *, share: float = 12
) -> Workload:
    return Workload(
        source="otel",
        provider=provider,
        model=model,
        team="operations",
        service=service,
        share=share,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


# word -> the workload that it adds. All of them together cost about as much as all else, so that each is
# worth telling and what others plant still stands out. The prices of tiers and batches that are used here
# hold from any day on.
SAVINGS = {
    "unread-cache": _planted("anthropic", "claude-sonnet-5-5", "digests", 6_500, 300),
    "priority-tier": _planted("openai", "gpt-6.1-terra", "checkout", 1_700, 140),
    "regional-model": _planted("aws.bedrock", "us.anthropic.claude-sonnet-5-5", "contracts", 12_000, 450),
    "older-model": _planted("anthropic", "claude-sonnet-4-5", "minutes", 1_700, 140),
    "large-input": _planted("gcp.gemini", "gemini-2.5-pro", "audits", 150_000, share=1),
    "nightly-job": _planted("anthropic", "claude-fable-5-2", "catalogue", 250, 70),
    "paid-retries": _planted("openai", "gpt-4.1", "imports", 6_000, 200),
    "repeated-questions": _planted("openai", "gpt-4.1", "helpdesk", 4_500, 700),
}
NIGHT = 2  # the hour of the job
QUESTIONS = 3  # that are asked again and again


def change(words: frozenset[str], workload: Workload, call: Inference) -> None:
    """Make a call what was planted in its workload."""
    word = next((word for word in words if SAVINGS.get(word) is workload), None)
    if word is None or call.input_tokens is None:
        return
    if word == "unread-cache":
        call.cache_write_tokens = call.input_tokens
    elif word == "priority-tier":
        call.tags = {**call.tags, "service_tier": "priority"}
    elif word == "paid-retries":
        call.status, call.error_type = "error", "timeout"
    elif word == "repeated-questions":
        question = call.input_tokens % QUESTIONS
        call.input_tokens, call.output_tokens = workload.input_tokens + 1000 * question, 700 + 100 * question
