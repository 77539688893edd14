"""
What providers state about their prompt caches: data, with the page and the day of every number.

A provider without an entry states no rule from which counts alone show what its cache held.
"""

from __future__ import annotations

from typing import NamedTuple

from spool.record import NS, Inference

EXPLICIT, AUTOMATIC = "explicit", "automatic"


class Lifetime(NamedTuple):
    """For how long after a use (ns) cached tokens surely live, and after how long they are surely dead."""

    lives: int
    dies: int


class CacheRule(NamedTuple):
    """
    The rule of one provider. `step` and `least` are the multiple and the smallest number of tokens that an automatic
    cache holds. `page` states the numbers, as read on `day`.
    """

    kind: str
    page: str
    day: str
    step: int = 1
    least: int = 0


# Lifetimes of explicit caches (_CLAUDE.page). A use renews them.
FIVE_MINUTES = Lifetime(300 * NS, 300 * NS)
ONE_HOUR = Lifetime(3600 * NS, 3600 * NS)
UNSTATED = Lifetime(300 * NS, 3600 * NS)  # one of the two, but the source does not state which
# An automatic cache keeps tokens for at least this time (_OPENAI.page). DeepSeek states more.
AUTOMATIC_LIVES = 300 * NS
# The smallest input that each model with an explicit cache can cache is at most this many tokens (_CLAUDE.page).
SURELY_CACHEABLE = 4096

_CLAUDE = CacheRule(
    EXPLICIT, "https://platform.claude.com/docs/en/build-with-claude/prompt-caching", "2026-12-01"
)
_OPENAI = CacheRule(
    AUTOMATIC, "https://platform.openai.com/docs/guides/prompt-caching", "2026-03-05", 128, 1024
)
_DEEPSEEK = CacheRule(AUTOMATIC, "https://api-docs.deepseek.com/news/news0802", "2026-12-01", 64, 64)
_SELLERS_OF_CLAUDE = frozenset(
    {"anthropic", "aws.bedrock", "gcp.vertex_ai", "azure.ai.inference", "azure.ai.openai"}
)
_AUTOMATIC = {"openai": _OPENAI, "azure.ai.openai": _OPENAI, "deepseek": _DEEPSEEK}


def rule_of_call(call: Inference) -> CacheRule | None:
    provider = call.provider or ""
    if "claude" in (call.response_model or call.request_model or ""):
        return _CLAUDE if provider in _SELLERS_OF_CLAUDE else None
    return _AUTOMATIC.get(provider)
