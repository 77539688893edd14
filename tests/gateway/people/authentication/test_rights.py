"""Every right of a bearer is off unless the code that creates the bearer grants it."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

import gateway
from gateway.people.authentication.bearer import AuthenticatedKey

# These fields identify the caller or the time of the request. All other fields are rights.
FACTS = {"local_user", "name", "labels", "named", "expects", "number"}
RIGHTS = {"scopes", "device", "may_chain", "is_local", "is_gateway", "person", "token"}
# Every function that creates a bearer, with the rights that the function grants.
WAYS = {
    # the rights of a bearer for a key from the list of keys
    ("people/authentication/access.py", "_key_bearer"): {"scopes", "may_chain", "is_gateway"},
    # the rights of a bearer for an enrolment token, which never chains
    ("people/authentication/access.py", "_token_bearer"): {"scopes", "token"},
    ("people/authentication/access.py", "_find_bearer"): {
        "may_chain"
    },  # the rights of a bearer for a device that `server.chain_keys` names
    ("devices/lifecycle.py", "bearer_of_key"): {"scopes", "device"},
    ("http/admission.py", ""): {"scopes"},  # the rights of a bearer at an installation that needs no key
    ("mcp/endpoint.py", "bearer_of_person_token"): {"scopes", "person"},
    ("cli/agent_run.py", "_run_app_with_gateway_link"): {
        "scopes",
        "device",
        "is_local",
    },  # the rights of a bearer for a program on the agent's machine
    ("cli/explain.py", "explain_payload"): {"scopes"},
    ("service/demo/filling.py", "_send_month"): {"scopes"},
    ("intake/merge_window.py", "_sender_to_bearer"): {"scopes", "device", "may_chain", "is_local"},
}


def test_every_field_of_a_bearer_is_a_fact_or_a_right() -> None:
    """A new field must be classified here as a fact or a right before it is used."""
    assert RIGHTS | FACTS == {field.name for field in dataclasses.fields(AuthenticatedKey)}


def test_a_bearer_of_nothing_but_a_name_may_do_nothing() -> None:
    bearer = AuthenticatedKey("anybody", frozenset())
    assert [] == [name for name in RIGHTS if getattr(bearer, name)]


@pytest.mark.proves("A laptop changes or claims calls of others through its agent")
def test_each_way_to_a_bearer_grants_what_it_is_to_grant() -> None:
    """A new function that creates bearers, or that grants another right, must be added to the table."""
    made: dict[tuple[str, str], set[str]] = {}
    root = Path(gateway.__file__).parent
    for file in sorted(root.rglob("*.py")):
        text = file.read_text("utf-8")
        if "AuthenticatedKey" in text:
            for function, given in _grants(ast.parse(text)):
                made.setdefault((str(file.relative_to(root)), function), set()).update(given & RIGHTS)
    assert WAYS == {way: rights for way, rights in made.items() if rights}


def _grants(module: ast.Module) -> list[tuple[str, set[str]]]:
    """Return the fields that a module sets on bearers, by constructor or by `replace`."""
    names = [field.name for field in dataclasses.fields(AuthenticatedKey)]
    found: list[tuple[str, set[str]]] = []

    def walk(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = {word.arg for word in node.keywords if word.arg is not None}
            first = node.args[0] if node.args else None
            if node.func.id == "AuthenticatedKey":
                found.append((function, given | set(names[: len(node.args)])))
            elif node.func.id == "replace" and isinstance(first, ast.Name) and first.id == "bearer":
                found.append((function, given))
        for child in ast.iter_child_nodes(node):
            walk(child, function)

    walk(module, "")
    return found
