"""
The pages of docs/connect: their settings are well formed, and each example payload becomes records at
the page's address.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.sdk import environment_variables

from gateway.configuration.reader import load_config
from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.agent.policy.targets import MANAGED
from spool.record import Inference
from tests.clients import capture
from tests.documents import CONNECT, ROOT, Block, ConnectPage, connect_page, connect_pages, parsed_yaml
from tests.integration.conftest import Serving
from tests.rounds import part

PAGES = connect_pages()
SECTIONS = ["Settings", "What is counted", "Counted twice?"]
FACTS = ["send to", "key", "source", "checked with"]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

# Variables outside the OpenTelemetry standard, grouped by the product that reads them.
KNOWN_VARIABLES = {
    "claude-code": {"CLAUDE_CODE_ENABLE_TELEMETRY"},
    "claude-code-behind-a-gateway": {"CLAUDE_CODE_ENABLE_TELEMETRY", "ANTHROPIC_BASE_URL"},
    "envoy-ai-gateway": {"OPENINFERENCE_HIDE_INPUTS", "OPENINFERENCE_HIDE_OUTPUTS"},
    "langfuse": {"LANGFUSE_HOST", "LANGFUSE_BASE_URL", "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"},
    "litellm": {
        "GENERIC_LOGGER_ENDPOINT",
        "GENERIC_LOGGER_HEADERS",
        "OTEL_EXPORTER",
        "OTEL_ENDPOINT",
        "OTEL_HEADERS",
    },
    "portkey": {"OTEL_PUSH_ENABLED", "OTEL_ENDPOINT"},
}
STANDARD_VARIABLES = {
    value for name, value in vars(environment_variables).items() if name.startswith("OTEL_")
} | {"OTEL_LOGS_EXPORTER", "OTEL_METRICS_EXPORTER", "TOLLHOUSE_KEY"}


@each_page
def test_a_page_has_the_form_of_all_pages(page: ConnectPage) -> None:
    """
    Every page has the same facts and sections in the same order. Assistants with managed settings have
    one more section. Only an address or a key that differs from docs/connect/index.md is stated.
    """
    assert FACTS == list(page.facts)
    assert page.payloads
    assert [name for name in FACTS if name in page.stated_facts] == list(page.stated_facts)
    usual = {"send to": "`http://HOST:4318`", "key": "`Authorization: KEY`"}
    assert {} == dict(usual.items() & page.stated_facts.items())
    sections = list(SECTIONS)
    if page.name in {assistant.page for assistant in MANAGED.values()}:
        sections.insert(sections.index("Settings") + 1, "Managed")
    assert sections == re.findall(r"^## (.*)$", page.text, re.MULTILINE)


def test_the_index_names_every_page() -> None:
    linked = re.findall(r"\]\(([\w-]+)\.md\)", (CONNECT / "index.md").read_text())
    assert sorted(page.name for page in PAGES) == sorted(linked)


@each_page
def test_settings_are_well_formed(page: ConnectPage, tmp_path: Path) -> None:
    """Every block is valid in its language, and a block or a table names the address."""
    assert page.blocks()
    for block in page.blocks():
        _parse(block, tmp_path)
    settings = page.text.partition("\n## Settings\n")[2].partition("\n## ")[0]
    assert page.address.removeprefix("http://").partition("/api/")[0] in settings


def _parse(block: Block, directory: Path) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "yaml":
            parsed_yaml(block.text)
        case "toml" if "[otel]" not in block.text:
            file = directory / "tollhouse.toml"
            file.write_text(block.text)
            load_config(file, env={})
        case "toml":
            tomllib.loads(block.text)
        case "dotenv":
            assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*=\S+", line) for line in block.text.splitlines())
        case "python":
            ast.parse(block.text)
        case "sh":
            subprocess.run(["bash", "-n", "-c", block.text], check=True)
        case "js" if node := shutil.which("node"):
            file = directory / "settings.mjs"
            file.write_text(block.text)
            subprocess.run([node, "--check", str(file)], check=True)
        case other:
            assert other == "js", f"a block of the language {other!r}"


@each_page
def test_variables_are_known(page: ConnectPage) -> None:
    """
    Products ignore misspelled variables silently. So each variable must be of OpenTelemetry or listed for
    the page's product.
    """
    named = set(re.findall(r"^(?:export )?([A-Z][A-Z0-9_]*)=", page.text, re.MULTILINE))
    named |= set(re.findall(r"- name: ([A-Z_]+)", page.text))
    assert set() == named - STANDARD_VARIABLES - KNOWN_VARIABLES.get(page.name, set())


@each_page
def test_versions_are_those_of_the_client_tests(page: ConnectPage) -> None:
    """
    A page names the versions with which it was checked, in the order of the locks of the tests of real clients.
    """
    checked = page.facts["checked with"]
    assert page.lock_files or "documentation only" in checked
    versions = re.findall(r"\d+\.\d[\w.]*", checked)
    assert len(page.lock_files) <= len(versions)
    for file, version in zip(page.lock_files, versions, strict=False):
        assert re.search(rf'(==|": ")({re.escape(version)})\b', (ROOT / file).read_text()), version


@pytest.mark.parametrize("name", ["claude-code", "gemini-cli", "qwen-code", "copilot"])
def test_the_agent_sets_what_the_page_says(name: str) -> None:
    """
    `tollhouse agent setup` and the page give an assistant the same settings, except for the key. The agent also sets
    the variables of one signal, which the page names.
    """
    keys = ASSISTANTS[name].keys("http://HOST:4318")
    of_signals = {path: value for path, value in keys.items() if re.search("OTLP_(LOGS|METRICS)_", path[-1])}
    page = connect_page(name)
    variables = page.environment(url="http://HOST:4318", key="KEY")
    written: dict[tuple[str, ...], Any] = {("env", name): value for name, value in variables.items()}
    for block in page.blocks("json"):
        for outer, inner in json.loads(block.text).items():
            if isinstance(inner, dict):
                written |= {(outer, key): value for key, value in inner.items()}
            else:
                written[(outer,)] = inner
    for path, value in of_signals.items():
        signal = path[-1].split("_")[3]
        general = written[(*path[:-1], path[-1].replace(f"_{signal}_", "_"))]
        assert value in (general, f"{general}/v1/{signal.lower()}")
    assert {**keys} == {path: value for path, value in written.items() if path in keys} | of_signals
    assert ("of one signal" in page.text) == bool(of_signals)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.blocks("python")], ids=lambda page: page.name
)
def test_programs_import_what_the_client_tests_import(page: ConnectPage) -> None:
    """The page's program imports only what the tests of real clients import."""
    programs = [program.read_text() for program in (ROOT / "tests/clients/programs").rglob("*.py")]
    assert set() == imports(page.blocks("python")[0].text) - set().union(*map(imports, programs))


def test_frameworks_have_the_instrumentations_of_the_client_tests() -> None:
    """The table of OpenInference's frameworks names only classes that the tests of real clients import."""
    named = re.findall(r"`(\w+)\.(\w+Instrumentor)`", connect_page("openinference").text)
    programs = [program.read_text() for program in (ROOT / "tests/clients/programs").rglob("*.py")]
    assert named
    wanted = {(f"openinference.instrumentation.{module}", name) for module, name in named}
    assert set() == wanted - set().union(*map(imports, programs))


def imports(program: str) -> set[tuple[str, str]]:
    """Return each imported module, and each name that is imported from one."""
    found = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("page", "path"),
    part(
        [
            pytest.param(page, path, id=f"{page.name}-{path.parent.name}")
            for page in PAGES
            for path in page.payloads
        ],
        every=4,
    ),
)
async def test_its_payload_becomes_records(page: ConnectPage, path: Path, serving: Serving) -> None:
    """The product's payload, sent as the page says, becomes calls with the page's source."""
    if path.suffix == ".gz":
        captured = capture.read(path)
        for request in captured.requests:
            headers = {**request.headers, **_key(page, serving.key)}
            answer = await serving.send(request.path, request.body, None, key=None, headers=headers)
            assert answer.status in (200, 207), answer.body
        count = len(captured.told)
    else:
        expected = json.loads(path.with_suffix("").with_suffix(".expected.json").read_text())["records"]
        address = urlsplit(page.address.replace("KEY", serving.key)).path or _path(path)
        answer = await serving.send(address, path.read_bytes(), key=None, headers=_key(page, serving.key))
        assert answer.status in (200, 204), answer.body
        count = len([record for record in expected if record["kind"] == "inference"])
    records = [record for record in await serving.records() if isinstance(record, Inference)]
    assert 0 < count == len([record for record in records if not record.shadow])
    assert page.facts["source"].strip("`") in {record.source for record in records}


def _path(payload: Path) -> str:
    """
    Return the path for a page whose address has none: SDKs append the OTLP path, and for a format the page's
    text names the path.
    """
    format = payload.parent.name
    return f"/v1/ai-telemetry/{format}" if "gateway" in payload.parts else "/v1/traces"


def _key(page: ConnectPage, key: str) -> dict[str, str]:
    words = page.facts["key"]
    if "Basic" in words:
        return {"Authorization": "Basic " + base64.b64encode(f"pk-anything:{key}".encode()).decode()}
    carried = re.fullmatch(r"`([\w-]+): (.*)`", words)
    return {carried[1]: carried[2].replace("KEY", key)} if carried else {}
