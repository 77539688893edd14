"""
An assistant's hook asks the running agent whether a session may continue.

The hook runs before every prompt and every tool, so this module imports only Python's smallest modules. The
input of the hook contains the prompt. Only the id of the session leaves this module.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

PATH: Final = "/v1/agent/verdict"
ADDRESS: Final = "http://127.0.0.1:4318"
ANSWER_S: Final = 0.05
GO_ON, REFUSE = 0, 2
MOST_SESSION: Final = 256  # characters
_MOST_INPUT: Final = 64 * 1024 * 1024
_MOST_ANSWER: Final = 64 * 1024
_ENDPOINT: Final = re.compile(r"http://(127\.[\d.]+|localhost|\[::1\]):(\d{1,5})/?", re.ASCII)
AMOUNT: Final = r"[0-9]{1,12}(\.[0-9]{1,12})?"
_UNKNOWN: Final = "Tollhouse: the agent states no verdict on this session, and this hook refuses without one."


class HookArguments(NamedTuple):
    """
    The options of a hook. `session_limit` is decimal text in dollars, or "". With `is_closed`, the session is
    refused if the agent does not answer.
    """

    endpoint: str = ADDRESS
    session_limit: str = ""
    is_closed: bool = False

    @property
    def argument_problem(self) -> str:
        found = _ENDPOINT.fullmatch(self.endpoint)
        if found is None or not 0 < int(found[2]) < 65536:
            return f"--endpoint {self.endpoint} is no address of this machine, such as {ADDRESS}"
        if self.session_limit and not re.fullmatch(AMOUNT, self.session_limit):
            return f"--session-limit {self.session_limit} is no amount, such as 20 or 7.50"
        return ""


def parse_hook_arguments(words: Sequence[str]) -> HookArguments | None:
    """Parse the options of a hook. Return None if click must parse them, for example `--help`."""
    question, left = HookArguments(), [*words]
    while left:
        name, is_joined, value = left.pop(0).partition("=")
        if name == "--closed" and not is_joined:
            question = question._replace(is_closed=True)
        elif name not in ("--endpoint", "--session-limit") or not (is_joined or left):
            return None
        else:
            value = value if is_joined else left.pop(0)
            is_limit = name == "--session-limit"
            question = (
                question._replace(session_limit=value) if is_limit else question._replace(endpoint=value)
            )
    return None if question.argument_problem else question


def answer_assistant_hook(hook_arguments: HookArguments) -> int:
    """Read the hook's input, ask the agent, and print a refusal. Return the exit code of the hook."""
    reason = reason_to_refuse_hook_call(hook_arguments, sys.stdin.buffer.read(_MOST_INPUT + 1))
    if reason:
        sys.stderr.write(f"{reason}\n")
    return REFUSE if reason else GO_ON


def reason_to_refuse_hook_call(
    hook_arguments: HookArguments, hook_input: bytes, timeout_s: float = ANSWER_S
) -> str:
    """Return why the session in the hook's input may not continue, or ""."""
    session = parse_session_id(hook_input)
    reason = _ask_agent_for_refusal(hook_arguments, session, timeout_s) if session else None
    if reason is None:
        return _UNKNOWN if hook_arguments.is_closed else ""
    return reason


def parse_session_id(hook_input: bytes) -> str:
    try:
        found = json.loads(hook_input) if len(hook_input) <= _MOST_INPUT else None
    except (ValueError, RecursionError):
        return ""
    session = found.get("session_id") if isinstance(found, dict) else None
    return session if isinstance(session, str) and len(session) <= MOST_SESSION else ""


def _ask_agent_for_refusal(hook_arguments: HookArguments, session: str, timeout_s: float) -> str | None:
    """Return why the agent refuses a session, "" if it does not, or None if it does not answer in time."""
    body = json.dumps({"session_id": session, "session_limit": hook_arguments.session_limit}).encode()
    try:
        head, _, answer = _post_to_agent(hook_arguments.endpoint, body, timeout_s).partition(b"\r\n\r\n")
        reason = json.loads(answer)["refuse"] if head.split(b" ", 2)[1:2] == [b"200"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return reason if isinstance(reason, str) else None


def _post_to_agent(endpoint: str, body: bytes, timeout_s: float) -> bytes:
    """
    Send a request to the agent, and return its response. Raises OSError if the response is not complete in
    time.
    """
    until = time.monotonic() + timeout_s
    host, _, port = endpoint.removeprefix("http://").rstrip("/").rpartition(":")
    head = (
        f"POST {PATH} HTTP/1.0\r\nHost: {host}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = b""
    with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
        connection.sendall(head.encode() + body)
        while (left_s := until - time.monotonic()) > 0 and len(answer) <= _MOST_ANSWER:
            connection.settimeout(left_s)
            part = connection.recv(_MOST_ANSWER)
            if not part:
                return answer
            answer += part
    raise OSError("the answer is too late or too long")
