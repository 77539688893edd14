"""Imports of a process: a start and a command load only what they use."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.cli import COMMANDS as LISTED
from gateway.cli.send.command import example_payload
from gateway.operations.records.filters import FILTERS
from gateway.operations.records.newest import RECORDS
from tests.integration.conftest import Serve

OWN = ("gateway", "spool", "exporters")
# This program runs a server that prints its imported modules when it is ready, and stops.
READY = """
import os, signal, sys
from gateway.cli import main, serve

def announce(*_):
    print("LOADED", *sys.modules)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)

serve._announce_start = announce
main()
"""
# This program runs commands one after the other, and prints its imported modules at the end.
COMMANDS = """
import json, sys
from gateway.cli import main

for words in json.loads(sys.argv[1]):
    main(words, standalone_mode=False)
print()
print("LOADED", *sys.modules)
"""

# This program imports the parts of the insights that an answer of `/metrics` needs.
SCRAPED = """
import sys
import gateway.money.insights.key_troubles, gateway.money.insights.rhythms
print("LOADED", *sys.modules)
"""

# This program prints the help of each command, and the modules that are imported until then.
HELP = """
import sys
from gateway.cli import main

for name in sys.argv[1:]:
    main([name, "--help"], standalone_mode=False)
    print("LOADED", name, *sys.modules)
"""
# These commands name the formats of payloads in their options, or try the exporters.
WITH_FORMATS = ("send", "events", "explain", "check", "doctor")

# This program imports the table of all addresses in the same way as the first key and the preview of a role do.
ASKED = """
import asyncio, importlib.abc, sys, threading
from gateway.service.addresses import application

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if threading.current_thread() is threading.main_thread():
            on_loop.append(name)

async def ask():
    assert "gateway.service.addresses.table" not in sys.modules
    sys.meta_path.insert(0, Watch())
    opened = await application._operations_by_scope()
    rows = await application._all_operator_rows()
    print("LOADED", len(opened) > 0 < len(rows), *(name for name in on_loop if name.startswith("gateway.")))

on_loop = []
asyncio.run(ask())
"""

# This program imports what a search does, and prints its imported modules.
SEARCHED = """
import asyncio, sys
from gateway.operations.installation.search import LISTS
from gateway.service.addresses.areas import find_get_addresses_by_path
rows = asyncio.run(find_get_addresses_by_path(LISTS.values()))
assert rows.keys() == set(LISTS.values()) and all(row.names for row in rows.values())
print("LOADED", *sys.modules)
"""

# These commands have options with words that handlers define.
WITH_WORDS = [("tail",), ("reconcile",), ("export",), ("allocation",), ("configuration",), ("roles",)]


async def loaded(script: str, *words: str) -> set[str]:
    """Run a script in a new process; return the modules that it imported."""
    [line] = await loads(script, *words)
    return set(line)


async def loads(script: str, *words: str) -> list[list[str]]:
    """Run a script in a new process; return the words of each of its lines about modules."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *words, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert 0 == process.returncode, errors.decode()
    return [line.split() for line in output.decode().splitlines() if line.startswith("LOADED ")]


def own(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.partition(".")[0] in OWN)


@pytest.mark.parametrize(
    "native",
    [
        "false",
        pytest.param(
            "true", marks=pytest.mark.skipif(not find_spec("tollhouse_native"), reason="is not built")
        ),
    ],
)
async def test_a_start_imports_what_a_server_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    """
    A start imports no handler, tool, detector, bill reader, format or product. The first request that needs
    one imports it, with or without the compiled module.
    """
    monkeypatch.setenv("TOLLHOUSE_SERVER__NATIVE", native)
    addresses = ("--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0")
    modules = await loaded(READY, "serve", "--data", str(tmp_path / "data"), *addresses)
    first_used = (
        "gateway.operations.money.budgets",
        "gateway.operations.receivers.ai_telemetry",
        "gateway.operations.receivers.otlp_http",
        "gateway.money.insights.detectors",
        "gateway.mcp",
        "gateway.normalise.formats.list",
        "gateway.normalise.otlp",
        "gateway.operations.money.costs",
        "gateway.operations.bills",
        "gateway.money.recommendations",
        "gateway.bills.reconciliation",
        "gateway.bills.statements",
        "gateway.core.yaml_text",
        "exporters.destinations.focus",
        "exporters.focus",
    )
    assert [] == [name for name in own(modules) if name.startswith(first_used)]


@pytest.mark.proof
async def test_the_first_metrics_load_no_bills() -> None:
    """
    The first answer of `/metrics` imports no bill reader and no detector, because the event loop waits for imports.
    """
    modules = await loaded(SCRAPED)
    assert "gateway.money.insights.key_troubles" in modules
    heavy = ("gateway.bills", "gateway.money.insights.detectors")
    assert [] == [name for name in own(modules) if name.startswith(heavy)]


@pytest.mark.proof
async def test_the_grpc_library_is_imported_only_for_a_grpc_address(tmp_path: Path) -> None:
    """The gRPC library takes 9 MiB of memory, so a server without a gRPC address does not import it."""
    modules = await loaded(
        READY, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--grpc-listen", ""
    )
    assert "gateway.http" in modules
    assert "grpc" not in modules


@pytest.mark.proof
async def test_the_search_imports_only_what_it_searches() -> None:
    """A search imports the areas of its lists, but no signatures, which only the first signature needs."""
    modules = await loaded(SEARCHED)
    assert "gateway.operations.money.budgets" in modules
    heavy = ("cryptography", "gateway.service.addresses.table", "gateway.mcp.operator")
    assert [] == [name for name in heavy if name in modules]


async def test_a_first_request_imports_its_area(serve: Serve) -> None:
    """
    An address whose handlers are not imported yet answers correctly, with any method and below its path.
    """
    serving = await serve()
    answers = [
        (await serving.send(path, b"", None, method=method, key=None)).status
        for path, method in [
            ("/v2/budgets", "GET"), ("/v2/budgets", "PUT"), ("/v2/budgets/one/two/three", "GET"), ("/v2/budget", "GET"),
            ("/console/api/budgets", "PUT"), ("/console/api/budgets/one/two/three", "GET"),
        ]
    ]  # fmt: skip
    assert [401, 405, 404, 404, 405, 404] == answers


async def test_commands_import_what_they_say(serve: Serve) -> None:
    """
    A command that queries a running server loads only a client: no server, no storage, no telemetry encoder.
    """
    serving = await serve()
    given = ("--json", "--data", str(serving.app.config.data_dir))
    asked = (("keys", "list"), ("budgets", "list"), ("report",), ("spool", "status"))
    modules = await loaded(COMMANDS, json.dumps([[*words, *given] for words in asked]))
    heavy = (
        "aiohttp.web",
        "google.protobuf",
        "grpc",
        "opentelemetry",
        "prometheus_client",
        "sqlite3",
        "yaml",
    )
    assert [] == [name for name in heavy if name in modules]


@pytest.mark.proof
async def test_an_explained_payload_needs_only_a_log(tmp_path: Path) -> None:
    """`tollhouse explain` imports no other part of a storage. For a gateway's payload, it imports no OTLP module."""
    payload = tmp_path / "payload.json"
    payload.write_bytes(example_payload("litellm"))
    modules = await loaded(COMMANDS, json.dumps([["explain", str(payload)]]))
    asked = (
        "gateway.normalise.otlp",
        "spool.container_files",
        "spool.ledger.ledger",
        "spool.registry.registry",
        "spool.storage",
    )
    assert "spool.sqlite.log.log" in modules
    assert [] == [name for name in asked if name in modules]


@pytest.mark.proof
async def test_the_words_of_commands_cost_what_they_say() -> None:
    """The options of a command load no handler and no registry storage."""
    modules = await loaded(COMMANDS, json.dumps([[*words, "--help"] for words in WITH_WORDS]))
    asked = ("gateway.operations.services", "gateway.operations.requests.requests", "spool.registry.registry")
    assert [] == [name for name in asked if name in modules]


@pytest.mark.proof
async def test_the_help_of_a_command_loads_no_server() -> None:
    """
    The help of a command loads no server: commands that run a server import it only when they start it. In this
    test each command also has the modules of those before it, so the commands with formats come last.
    """
    names = sorted(LISTED, key=lambda name: name in WITH_FORMATS)
    found = {name: set(modules) for _, name, *modules in await loads(HELP, *names)}
    assert names == list(found)
    heavy = (
        "aiohttp.web",
        "grpc",
        "prometheus_client",
        "sqlite3",
        "yaml",
        "gateway.service.app",
        "gateway.operations.services",
    )
    for name, modules in found.items():
        assert [] == [module for module in heavy if module in modules], name
        if name not in WITH_FORMATS:
            assert [] == [
                module for module in own(modules) if module.startswith("gateway.normalise.formats.")
            ]
            assert not modules & {"google.protobuf", "aiohttp"}, name


def test_tail_knows_the_filters_of_the_list() -> None:
    """
    The filters of `tail` equal those of the list. They are defined in a small module, so that the command starts
    fast.
    """
    assert FILTERS == tuple(RECORDS.filters)


@pytest.mark.proof
async def test_table_of_addresses_is_imported_off_the_event_loop() -> None:
    """
    Importing the table of all addresses costs half a second of processor time. It runs off the event loop, so only
    the request that needs the table waits.
    """
    assert {"LOADED", "True"} == await loaded(ASKED)


# Each try is a copy of this process, in which neither module is imported yet.
TOGETHER = """
import os, sys, threading
from gateway.service.assembly.services import _all_source_names
from gateway.core.first_use import import_blocking
sys.setswitchinterval(1e-6)
failed = []

def run(work, begin):
    begin.wait()
    try:
        work()
    except ImportError as error:
        failed.append(error)

works = (_all_source_names, lambda: import_blocking("gateway.operations.receivers.otlp_http"))
for _ in range(3):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    begin = threading.Barrier(2)
    threads = [threading.Thread(target=run, args=(work, begin)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    break
"""


@pytest.mark.proof
def test_a_first_commit_and_a_first_request_import_one_after_the_other() -> None:
    """
    The first commit, of any topic, imports the names of sources. At the same time a thread imports the
    receivers for the first request. Neither may see an unfinished module of the other.
    """
    done = subprocess.run([sys.executable, "-c", TOGETHER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
