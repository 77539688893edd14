"""
Names that may hold content: prompts, responses, tool arguments and the like (promise 4).

Attribute names of known products are listed. A free name, which a caller chose, is judged word by word.
`userPrompt`, `prompt.0` and `page_content` are content; `prompt_version` and `message_count` are facts about
it. Names such as `code` or `result` may be either, so they are dropped unless an operator lists them in
`privacy.keep_attributes`.
"""

from __future__ import annotations

import re

from spool.caches import cache_by_text
from spool.ledger.work import TAGS as UNIT_TAGS

_CONTENT = frozenset({
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions",
    "gen_ai.tool.definitions", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "input.value",
    "output.value", "embedding.text", "traceloop.entity.input", "traceloop.entity.output",
    "langfuse.trace.input", "langfuse.trace.output", "langfuse.observation.input",
    "langfuse.observation.output", "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response",
    "mlflow.spanInputs", "mlflow.spanOutputs", "user_prompt", "prompt", "prompts", "completion",
    "completions", "message", "messages", "input", "output", "content", "request_text", "response_text",
    "request_body", "response_body", "system_prompt", "instructions", "ai.response.text",
    "ai.response.object", "ai.response.toolCalls", "ai.response.reasoning", "ai.response.providerMetadata",
    "ai.result.text", "ai.result.object", "ai.toolCall.args", "ai.toolCall.result", "ai.value", "ai.values",
    "ai.embedding", "ai.embeddings", "arguments", "args", "function_args", "tool_input", "tool_output",
    "tool_parameters", "tool_response", "error_message", "body", "headers", "traceback",
    "exception.stacktrace", "exception.message", "error.message", "text", "question", "answer", "choices",
    "candidates", "contents", "payload", "request_payload", "response_payload", "llm_request",
    "llm_response_text", "inputbodyjson", "outputbodyjson", "requestmessages", "responsemessages",
    "error_str", "statusmessage", "request", "response", "query", "user_query", "user_input", "user_message",
    "assistant_message", "chat_history", "history", "transcript", "input_text", "output_text", "tool_call",
    "tool_calls", "genkit:input", "genkit:output", "stack", "stacktrace", "stack_trace",
})  # fmt: skip
CONTENT_BEGINNINGS = (
    "gen_ai.prompt",
    "gen_ai.completion",
    "ai.prompt",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompts",
    "llm.prompt_template",
    "llm.completions",
    "gcp.vertex.agent.tool_",
    "embedding.embeddings",
    "retrieval.documents",
    "gen_ai.content",
)
_CONTENT_ENDINGS = (
    ".content", ".contents", ".prompt", ".prompts", ".message", ".messages", ".input", ".inputs", ".output",
    ".outputs", ".completion", ".completions", ".arguments", ".system_instructions", ".prompt_json",
    ".completion_json", "_prompt", "_messages",
)  # fmt: skip
NOT_CONTENT = ("gen_ai.prompt_caching", "gen_ai.prompt_tokens", "gen_ai.completion_token")

_CONTENT_WORDS = frozenset({
    "answer", "answers", "arg", "args", "argument", "arguments", "body", "candidate", "candidates", "chat", "choice",
    "choices", "chunk", "chunks", "completion", "completions", "content", "contents", "context", "conversation",
    "dialog", "dialogue", "document", "documents", "embedding", "embeddings", "excerpt", "generated", "generation",
    "generations", "headers", "history", "html", "input", "inputs", "instruction", "instructions", "markdown",
    "message", "messages", "msg", "msgs", "output", "outputs", "passage", "passages", "payload", "prompt", "prompts",
    "query", "queries", "question", "questions", "reasoning", "reply", "replies", "request", "response", "responses",
    "snippet", "snippets", "stacktrace", "summary", "text", "texts", "thinking", "thought", "thoughts", "traceback",
    "transcript", "transcripts", "transcription", "translation", "utterance", "utterances",
})  # fmt: skip
# roots of names that are often joined to another word, as in `userprompt`, `chatmessages` and
# `systeminstruction`
_CONTENT_ROOTS = ("prompt", "message", "completion", "instruction", "transcript")
# Words at the end of a name that show a fact about content, and not content itself.
_FACT_WORDS = frozenset({
    "at", "bytes", "cache", "cached", "caching", "category", "chars", "class", "code", "cost", "count", "counts",
    "date", "day", "duration", "effort", "enabled", "encoding", "flag", "format", "hash", "hit", "hits", "id", "ids",
    "index", "kind", "lang", "language", "latency", "length", "limit", "locale", "max", "md5", "method", "min", "mode",
    "model", "ms", "name", "num", "number", "per", "percent", "price", "priority", "provider", "rate", "ratio",
    "reason", "region", "route", "score", "seconds", "sha", "sha1", "sha256", "size", "slug", "source", "speed",
    "state", "status", "strategy", "tier", "time", "timestamp", "tokens", "token", "total", "ttl", "type", "types",
    "usage", "usd", "uuid", "variant", "version", "window",
})  # fmt: skip
# Words that make a name count as content unless the operator permits the name.
_DOUBTFUL_WORDS = frozenset({
    "abstract", "annotation", "annotations", "caption", "captions", "cmd", "code", "command", "commands",
    "comment", "comments", "correction", "corrections", "critique", "description", "diff", "diffs", "draft",
    "drafts", "email", "error", "errors", "essay", "exception", "expected", "explanation", "explanations",
    "expression", "feedback", "groundtruth", "hypothesis", "log", "logs", "memo", "note", "notes",
    "observation", "observations", "original", "paragraph", "paragraphs", "parameters", "params", "paste",
    "patch", "patches", "phrase", "quote", "rationale", "raw", "remark", "remarks", "result", "results",
    "rewrite", "script", "scripts", "sentence", "sentences", "sms", "sql", "stderr", "stdin", "stdout",
    "transcribed", "truth", "turn", "turns", "writing",
})  # fmt: skip
# Words with which a name that has a doubtful word states a fact, such as `code_owner`.
_DOUBTFUL_FACTS = _FACT_WORDS | {
    "account",
    "app",
    "branch",
    "env",
    "environment",
    "group",
    "level",
    "owner",
    "policy",
    "project",
    "repo",
    "repository",
    "stream",
    "team",
    "user",
}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def is_name_of_content(name: str) -> bool:
    lower = name.lower()
    is_like_content = name.startswith(CONTENT_BEGINNINGS) or lower.endswith(_CONTENT_ENDINGS)
    if is_like_content and not name.startswith(NOT_CONTENT):
        return True
    return lower in _CONTENT or name in _CONTENT


is_content = cache_by_text(8192)(is_name_of_content)  # cached, because names recur


@cache_by_text(8192)
def may_be_name_of_content(name: str) -> bool:
    """
    Return whether a name that a caller chose may hold content: it has a content word and does not end with a
    word for a fact.
    """
    if is_content(name):
        return True
    if name in UNIT_TAGS:  # these tags are permitted although "request" is a word for content
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    is_about_content = any(
        word in _CONTENT_WORDS or word.removesuffix("s").endswith(_CONTENT_ROOTS) for word in words
    )
    return is_about_content and words[-1] not in _FACT_WORDS


@cache_by_text(8192)
def needs_operator_permission(tag_name: str) -> bool:
    """
    Return whether a name that a caller chose needs the operator's permission, such as `code`, `tool_result`
    or `note`.
    """
    words = [word.lower() for word in _WORD.findall(tag_name)]
    if not any(word in _DOUBTFUL_WORDS for word in words):
        return False
    return len(words) == 1 or words[-1] not in _DOUBTFUL_FACTS
