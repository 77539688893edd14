"""
The adapters of deploy/verdicts against a running server. LiteLLM and FastAPI are
replaced by modules with the two names that the hook imports, and no Envoy runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature

from gateway.devices.agent.policy.signatures import SigningKey, private_pem_from_seed
from gateway.money.budgets import verdicts
from tests.integration.operations.money.test_published_budgets import Asking, asking
from tests.integration.operations.money.test_verdicts import reader
from tests.rounds import part

__all__ = ["asking"]
FOLDER = Path(__file__).parents[4] / "deploy/verdicts"
JOB = (FOLDER / "may_start.sh").read_text()
OPA = os.environ.get("TOLLHOUSE_OPA") or shutil.which("opa")


class Refused(Exception):
    def __init__(self, status_code: int, detail: dict[str, str]) -> None:
        super().__init__(detail)
        self.status_code = status_code


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "REFRESH_S", 0.0)
    monkeypatch.setattr(verdicts, "LOOK_S", 0.05)


@pytest.fixture
async def hook(asking: Asking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the module of the LiteLLM hook, with the key and the address of the server."""
    logger, fastapi = ModuleType("litellm.integrations.custom_logger"), ModuleType("fastapi")
    logger.CustomLogger = object  # type: ignore[attr-defined]
    fastapi.HTTPException = Refused  # type: ignore[attr-defined]
    for name in ("litellm", "litellm.integrations"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, logger.__name__, logger)
    monkeypatch.setitem(sys.modules, "fastapi", fastapi)
    board = asking.serving.app.services.operators.money.require_budgets().verdicts
    (tmp_path / "verdicts.pem").write_bytes(board.signing_key.public_pem)
    monkeypatch.setenv("TOLLHOUSE_URL", asking.serving.url)
    monkeypatch.setenv("TOLLHOUSE_KEY", await reader(asking))
    monkeypatch.setenv("TOLLHOUSE_VERDICT_KEY", str(tmp_path / "verdicts.pem"))
    module = ModuleType("tollhouse_verdicts")
    path = FOLDER / "tollhouse_verdicts.py"
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def caller(**names: str) -> SimpleNamespace:
    known = {"key_alias": None, "api_key": "hash", "team_id": None, "team_alias": None, "user_id": None}
    return SimpleNamespace(**{**known, **names})


async def ask(hook: Any, model: str = "gpt-4o", **names: str) -> Any:
    return await hook.handler.async_pre_call_hook(caller(**names), None, {"model": model}, "completion")


async def test_the_litellm_hook_refuses_a_spent_budget(asking: Asking, hook: Any) -> None:
    """
    The hook for LiteLLM admits calls before it has a table, refuses a spent budget with 429, and follows further
    tables.
    """
    data = await ask(hook)
    assert {"model": "gpt-4o"} == data
    await asking.create()
    await asking.calls(2)
    while not (hook.handler.table and hook.handler.table["rows"]):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.05)
    with pytest.raises(Refused) as refused:
        await ask(hook)
    assert 429 == refused.value.status_code
    assert "budget Search is spent until" in str(refused.value)
    hook.handler.task.cancel()


async def test_the_litellm_hook_without_a_valid_table(
    asking: Asking, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the table of verdicts has expired, the LiteLLM hook admits or refuses calls as its setting says. If a new
    table has a wrong signature, the hook keeps the last table.
    """
    await asking.create()
    await asking.calls(2)
    await asyncio.to_thread(hook.handler.pull)
    before = hook.handler.table
    assert hook.handler.reason({}) is not None
    monkeypatch.setattr(hook, "PUBLIC", hook.load_pem_public_key(other_key()))
    hook.handler.tag = ""
    with pytest.raises(InvalidSignature):
        await asyncio.to_thread(hook.handler.pull)
    assert before is hook.handler.table
    hook.handler.table = {**before, "valid_until": "2026-01-01T00:00:00.000Z"}
    assert hook.handler.reason({}) is None
    monkeypatch.setattr(hook, "IS_CLOSED", True)
    assert "no valid verdicts are known" == hook.handler.reason({})


def other_key() -> bytes:
    return SigningKey(private_pem_from_seed(b"o" * 32)).public_pem


@pytest.mark.parametrize(
    ("match", "call", "is_matched"),
    part(
        [
            ({"include": {}, "exclude": {}}, {}, True),
            ({"include": {"team": ["a", "b"]}, "exclude": {}}, {"team": "b"}, True),
            ({"include": {"team": ["a"]}, "exclude": {}}, {"team": None}, False),
            ({"include": {"team": [""]}, "exclude": {}}, {"team": None}, True),
            ({"include": {"team": ["a"]}, "exclude": {"model": ["x"]}}, {"team": "a", "model": "x"}, False),
            ({"include": {"tag:app": ["shop"]}, "exclude": {}}, {"team": "a"}, False),
        ],
        every=2,
    ),
)
async def test_rows_match_as_documented(hook: Any, match: Any, call: Any, is_matched: bool) -> None:
    assert is_matched == hook.matches(match, call)


@pytest.mark.proof
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_curl_script(asking: Asking) -> None:
    """
    The curl script refuses a key whose budget is spent. It admits another key, and every key if the server is down.
    """
    key = await reader(asking)
    url = asking.serving.url

    async def run(name: str, url: str, script: str = JOB) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", script, "script", name,
            env={**os.environ, "TOLLHOUSE_URL": url, "TOLLHOUSE_KEY": key}, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
        return process.returncode, errors.decode()

    assert (0, "") == await run("ci", url)
    board = asking.serving.app.services.operators.money.require_budgets().verdicts
    table = verdicts.BudgetVerdicts(
        as_of="", valid_until="", version=1, truncated=False, budgets=[], problems=[],
        rows=[verdict({"api_key": ["ci"]})],
    )  # fmt: skip
    signed = board._sign_table(table)

    async def current(name: str) -> verdicts.SignedTable:
        return signed

    board.current_signed_table = current  # type: ignore[method-assign]
    assert 1 == (await run("ci", url))[0]
    assert 0 == (await run("other", url))[0]
    down = "http://127.0.0.1:1"
    assert 0 == (await run("ci", down))[0]
    assert 1 == (await run("ci", down, JOB.replace("IS_CLOSED=0", "IS_CLOSED=1")))[0]


def verdict(include: dict[str, list[str]], state: str = verdicts.OVER) -> verdicts.BudgetVerdict:
    return verdicts.BudgetVerdict(
        budget="b", name="CI", owner=None, match=verdicts.VerdictMatch(include=include, exclude={}), state=state,
        measure="cost", spent="2", limit="1", left="0", currency="USD", resets_at="", unpriced_calls=0,
    )  # fmt: skip


@pytest.mark.skipif(OPA is None, reason="needs opa")
@pytest.mark.parametrize(
    ("include", "state", "valid_until", "is_closed", "allow"),
    [
        ({"team": ["search"]}, "over", "2199-01-01T00:00:00.000Z", False, False),
        ({"team": ["search"]}, "near", "2199-01-01T00:00:00.000Z", False, True),
        ({"team": ["ads"]}, "over", "2199-01-01T00:00:00.000Z", False, True),
        ({"tag:app": ["shop"]}, "over", "2199-01-01T00:00:00.000Z", False, True),
        ({"team": ["search"]}, "over", "2026-01-01T00:00:00.000Z", False, True),
        ({"team": ["search"]}, "over", "2026-01-01T00:00:00.000Z", True, False),
    ],
)
def test_the_policy_of_opa(
    tmp_path: Path, include: Any, state: str, valid_until: str, is_closed: bool, allow: bool
) -> None:
    policy = (FOLDER / "tollhouse.rego").read_text()
    if is_closed:
        policy = policy.replace("is_closed := false", "is_closed := true")
    (tmp_path / "policy.rego").write_text(policy)
    row = {"name": "CI", "state": state, "match": {"include": include, "exclude": {}}}
    table = {"tollhouse": {"valid_until": valid_until, "rows": [row]}}
    (tmp_path / "data.json").write_text(json.dumps(table))
    headers = {"x-team": "search", "x-key-name": "ci"}
    given = {"attributes": {"request": {"http": {"headers": headers}}}}
    (tmp_path / "input.json").write_text(json.dumps(given))
    files = [
        "--data",
        tmp_path / "policy.rego",
        "--data",
        tmp_path / "data.json",
        "--input",
        tmp_path / "input.json",
    ]
    command = [str(OPA), "eval", *map(str, files), "data.envoy.authz.allow"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert allow is json.loads(done.stdout)["result"][0]["expressions"][0]["value"]
