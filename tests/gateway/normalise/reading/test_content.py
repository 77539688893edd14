"""Names chosen by callers. Words in a name show whether its value may be content."""

from __future__ import annotations

import pytest

from gateway.normalise.reading.content import may_be_name_of_content
from gateway.normalise.reading.tags import (
    KNOWN,
    is_brief_text,
    is_known_or_brief_tag,
    put_label_unless_content,
    put_tag_if_allowed,
    put_tag_if_brief,
)

CONTENT = (
    "inputs", "outputs", "userPrompt", "UserPrompt", "user-prompt", "USER_PROMPT", "userprompt", "systemPrompt",
    "system_message", "systemMessage", "prompt.0", "messages.0", "input.0", "messages[0]", "inputText", "outputText",
    "completion_text", "completionText", "page_content", "pageContent", "document", "documents.1", "reasoning_content",
    "thinking", "reply", "generated_text", "generatedText", "last_user_message", "chat.history", "chatHistory",
    "llm-response", "modelResponse", "assistant reply", "question_text", "rag_context", "retrievedChunks",
    "customer_question", "finalAnswer", "summary", "email_body", "emailBody", "HTTPBody", "tool_args", "toolArguments",
    "function.arguments", "user:message", "msg", "raw_output", "output_1", "conversation", "transcript_en",
    "search query", "translation", "chatmessages", "systeminstruction", "text", "plain_text", "prompt text",
)  # fmt: skip
FACTS = (
    "team", "feature", "environment", "cost_center", "prompt_version", "promptVersion", "prompt_name", "prompt.id",
    "prompt_tokens", "completionTokens", "message_count", "messages_total", "response_id", "requestId", "query_source",
    "input_type", "outputFormat", "output_language", "reasoning_effort", "conversation_id", "chat_id", "document_type",
    "context_window", "text_length", "completion_reason", "tags", "service", "plan", "tenant", "project",
)  # fmt: skip


@pytest.mark.parametrize("name", CONTENT)
def test_names_with_a_word_for_content_are_content(name: str) -> None:
    """
    A name with a word for content is content, whether the word is in camel case, separated, numbered, or
    joined to others.
    """
    tags: dict[str, str] = {}

    assert may_be_name_of_content(name) and not put_tag_if_allowed(tags, name, "a canary") and tags == {}


@pytest.mark.parametrize("name", FACTS)
def test_facts_about_content_are_tags(name: str) -> None:
    """
    A version, a count or an id of a prompt is a tag, because it describes the prompt without containing it.
    """
    tags: dict[str, str] = {}

    assert not may_be_name_of_content(name) and put_tag_if_allowed(tags, name, "7") and tags == {name: "7"}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_documented_tags_are_no_content(name: str) -> None:
    """A tag that the pages name is stored from metadata and from events, such as a pull request."""
    tags: dict[str, str] = {}

    assert put_tag_if_allowed(tags, name, "acme/shop#42") and put_tag_if_brief(
        tags, name, "acme/shop#42", frozenset()
    )


def test_numbers_are_no_content() -> None:
    """A number is no content. The number of sent messages is a fact, but the messages are content."""
    tags: dict[str, str] = {}

    assert (
        put_tag_if_allowed(tags, "messages_sent", 12)
        and not put_tag_if_allowed(tags, "messages_sent", "hello")
        and tags == {"messages_sent": "12"}
    )


def test_labels_of_an_operator_are_no_content() -> None:
    """
    An operator's label `chat` is kept, because the operator chose its name and value. A label `prompt` is dropped.
    """
    tags: dict[str, str] = {}

    assert (
        put_label_unless_content(tags, "chat", "support")
        and not put_label_unless_content(tags, "prompt", "x")
        and tags == {"chat": "support"}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three four five", True), ("one two three four five six", False), ("Ben & Co. KG - EMEA / APAC", True),
        ("a b " + "c" * 60, True), ("a b " + "c" * 61, False), ("c" * 128, True), ("c" * 129, False),
        ("a\nb", False), ("a\tb", False), ("客户服务部门华东", True), ("客户要求取消五月份的订单", False), ("", True),
    ],
)  # fmt: skip
def test_a_label_is_short_and_of_few_words(text: str, expected: bool) -> None:
    """
    A label has at most five words in 64 characters, or one word of 128. In scripts without spaces,
    letters are counted.
    """
    assert expected == is_brief_text(text)


def test_doubtful_names_hold_numbers_alone() -> None:
    """Under a doubtful name, only numbers are kept. For example, `turns` may be a count or a dialogue."""
    assert is_known_or_brief_tag("turns", "7", frozenset()) and is_known_or_brief_tag(
        "code", "true", frozenset()
    )
    assert not is_known_or_brief_tag("turns", "hi", frozenset()) and is_known_or_brief_tag(
        "turns", "hi", frozenset({"turns"})
    )
