"""
What can be planted for recommendations: a workload of its own for each type, in which every call could cost less.
"""

from __future__ import annotations

from gateway.demo.workloads import Workload
from spool.record import Inference


def _planted(provider: str, model: str, service: str, input_tokens: int, output_tokens: int = 800) -> Workload:
    return Workload(
        source="otel",
        provider=provider,
        model=model,
        team="operations",
        service=service,
        share=12,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


# word -> the workload that it adds. The prices of tiers and batches that are used here hold from any day on.
SAVINGS = {
    "unread-cache": _planted("anthropic", "claude-sonnet-5-5", "digests", 40_000),
    "priority-tier": _planted("openai", "gpt-6.1-terra", "checkout", 12_000),
    "regional-model": _planted("aws.bedrock", "us.anthropic.claude-sonnet-5-5", "contracts", 60_000),
    "older-model": _planted("anthropic", "claude-sonnet-4-5", "minutes", 10_000),
    "large-input": _planted("google", "gemini-2.5-pro", "audits", 150_000),
    "nightly-job": _planted("anthropic", "claude-fable-5-2", "catalogue", 3_000),
    "paid-retries": _planted("openai", "gpt-4.1", "imports", 30_000),
    "repeated-questions": _planted("openai", "gpt-4.1", "helpdesk", 60_000),
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
