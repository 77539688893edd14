"""`tollhouse send` against a real server, and against one that is not ready yet."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from click.testing import CliRunner, Result

from exporters.service.events import event_amount
from exporters.settings import UpstreamSettings
from gateway.cli import main
from gateway.cli.send import upload
from gateway.cli.send.command import EXAMPLES
from gateway.cli.send.request_bodies import UploadBody
from gateway.configuration.sections import Config
from gateway.service.assembly.storage import open_storage
from spool.record import USAGE_EVENTS, UsageEvent
from spool.registry.scopes import CREATE_EVENT, INGEST
from spool.settings import SpoolSettings
from tests.free_ports import free_port
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

CASES = Path(__file__).parents[1] / "cases/gateway"

Send = Callable[..., "asyncio.Future[Result]"]


@pytest.fixture
def send(serving: Serving, tmp_path: Path) -> Send:
    """
    Return a function that runs the command with the server's address and key, and with its own state directory.
    """

    def run(
        *words: str, input: bytes | None = None, key: str | None = None, to: str | None = None
    ) -> asyncio.Future[Result]:
        environment = {
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "TOLLHOUSE_KEY": serving.key if key is None else key,
        }
        arguments = ["send", "--to", to or serving.url, *words]
        return asyncio.ensure_future(
            asyncio.to_thread(CliRunner(env=environment).invoke, main, arguments, input=input)
        )

    return run


def counts(result: Result) -> str:
    """Return the printed counts without the line about old calls, which has its own test."""
    return "\n".join(line for line in result.stdout.splitlines() if "from before this month" not in line)


async def test_a_directory_of_every_kind_arrives_once(send: Send, serving: Serving, tmp_path: Path) -> None:
    """
    `tollhouse send` sends a directory with documents, arrays, lines and gzip, each record once. A second run sends
    nothing, and `--again` counts nothing twice.
    """
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "batch.json").write_bytes((CASES / "litellm/slp-batch-array.json").read_bytes())
    (directory / "rows.json.gz").write_bytes(
        gzip.compress((CASES / "kong/http-log-two-llm-blocks.json").read_bytes())
    )
    (directory / "lines.ndjson").write_bytes((CASES / "litellm/slp-stream-and-azure.ndjson").read_bytes())
    (directory / "span.json").write_bytes((CASES / "cloudflare/otel-span.json").read_bytes())
    first = await send(str(directory))
    assert first.exit_code == 0
    assert counts(first) == "accepted 8, ignored 0, rejected 0"
    second = await send(str(directory))
    assert second.exit_code == 0
    assert counts(second) == "accepted 0, ignored 0, rejected 0, sent before 7"
    again = await send(str(directory), "--again")
    assert again.exit_code == 0
    assert counts(again) == "accepted 8, ignored 0, rejected 0"
    assert 8 == len(await serving.records())


async def test_an_example_is_a_first_record(send: Send, serving: Serving) -> None:
    """Each example is a new record, in every format."""
    for format in (*EXAMPLES, *EXAMPLES):
        result = await send("--example", format)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("accepted 1, "), result.output
    assert 2 * len(EXAMPLES) == len(await serving.records())


async def test_rejects_are_counted_by_reason(send: Send, serving: Serving) -> None:
    """
    The command reads standard input in the format that `--as` names. Rejected items are counted by reason.
    """
    events = json.loads((CASES / "litellm/slp-batch-array.json").read_bytes())
    events += [None, 5, events[0] | {"prompt_tokens": -1}]
    result = await send("-", "--as", "litellm", input=json.dumps(events).encode())
    assert 1 == result.exit_code
    assert [
        "accepted 3, ignored 1, rejected 2", "  rejected as implausible: 1", "  rejected as malformed: 1",
    ] == counts(result).splitlines()  # fmt: skip


async def test_what_a_report_of_this_month_does_not_show_is_said(send: Send, tmp_path: Path) -> None:
    """
    The hint about old calls follows the counts, names the command that shows them, and is in the JSON.
    Current calls cause no hint.
    """
    file = tmp_path / "old.json"
    file.write_bytes(json_traces(json_span(), json_span(startTimeUnixNano="1765980000000000000")))
    result = await send(str(file))
    assert (
        "2 of 2 are from before this month; to see them: tollhouse report --from 2025-12-17" in result.stdout
    )
    told = json.loads((await send(str(file), "--again", "--json")).stdout)
    assert told["older_than_this_month"] == 2
    assert told["oldest"] == "2025-12-17"
    assert "accepted 1, ignored 0, rejected 0\n" == (await send("--example", "litellm")).stdout


async def test_bad_files_do_not_keep_the_good_ones(send: Send, serving: Serving, tmp_path: Path) -> None:
    """Each bad file is named on its own line, and the exit code shows that something was not sent."""
    good, bad, odd, packed = (tmp_path / name for name in ("good.json", "bad.json", "odd.json", "packed.gz"))
    good.write_bytes((CASES / "litellm/slp-public-minimal.json").read_bytes())
    bad.write_text("not json")
    odd.write_text('{"nobody": "knows this"}')
    packed.write_bytes(b"\x1f\x8b\x08\x00" + b"garbage" * 9)
    # No file system accepts this name, so it behaves like a path in an unreadable directory.
    nowhere = str(tmp_path / ("long" * 100))
    result = await send(nowhere, str(bad), str(tmp_path / "missing.json"), str(odd), str(packed), str(good))
    assert result.exit_code == 1
    assert len(await serving.records()) == 1
    assert 5 == len(result.stderr.splitlines())
    assert "accepted 1, ignored 0, rejected 1" in result.stdout


async def test_a_wrong_key_ends_the_run(send: Send, tmp_path: Path) -> None:
    """A wrong key ends the run. The error quotes the gateway's answer, and nothing is remembered as sent."""
    file = tmp_path / "one.json"
    file.write_bytes((CASES / "litellm/slp-public-minimal.json").read_bytes())
    wrong = await send(str(file), key="th_wrong")
    assert wrong.exit_code == 1
    assert "401" in wrong.stderr
    key_file = tmp_path / "key"
    key_file.write_text("th_wrong\n")
    assert "401" in (await send(str(file), "--key-file", str(key_file))).stderr
    assert 0 == (await send(str(file))).exit_code


async def test_wrong_use_is_exit_2(send: Send) -> None:
    """Nothing to send, two inputs at once, an unknown format and an invalid address are usage errors."""
    for words, said in (
        ((), "give FILEs"),
        (("x.json", "--example", "kong"), "give FILEs"),
        (("--example", "smoke"), "known are litellm, "),
        (("x", "--as", "litelm"), "did you mean 'litellm'?"),
        (("x", "--to", "127.0.0.1:4318"), "is not an address"),
        (("x", "--to", "http://[::1"), "is not an address"),
        (("x", "--to", "http://user:word@127.0.0.1"), "must not contain a user"),
    ):
        result = await send(*words)
        assert result.exit_code == 2, result.stderr
        assert said in result.stderr, result.stderr


async def test_a_key_is_one_word(send: Send, tmp_path: Path) -> None:
    """
    White space around a key is ignored. White space inside a key is a usage error. Without a key, the message
    says where to put it.
    """
    key_file = tmp_path / "key"
    key_file.write_text("one\ntwo\n")
    assert 2 == (await send("--example", "kong", "--key-file", str(key_file))).exit_code
    none = await send("--example", "kong", key=" ")
    assert none.exit_code == 1
    assert "set TOLLHOUSE_KEY" in none.stderr


async def test_a_pipe_is_read_once(send: Send, serving: Serving, tmp_path: Path) -> None:
    """
    A named pipe cannot be read again, here with gzip. Its records are remembered, so a file with
    them sends nothing.
    """
    content = (CASES / "litellm/slp-public-minimal.json").read_bytes()
    pipe, file = tmp_path / "pipe", tmp_path / "one.json"
    os.mkfifo(pipe)
    file.write_bytes(content)
    _, result = await asyncio.gather(
        asyncio.to_thread(pipe.write_bytes, gzip.compress(content)), send(str(pipe))
    )
    assert result.exit_code == 0
    assert counts(result) == "accepted 1, ignored 0, rejected 0"
    assert "sent before 1" in (await send(str(file))).stdout


async def test_a_file_that_grew_sends_what_is_new(send: Send, serving: Serving, tmp_path: Path) -> None:
    """
    A file that grew sends only its new records, even those without a dedup key, whose repeat would count twice.
    """
    file = tmp_path / "grows.ndjson"
    row = {
        "litellm_call_id": "",
        "call_type": "completion",
        "custom_llm_provider": "openai",
        "model": "gpt-4o",
    }
    lines = [json.dumps(row | {"prompt_tokens": n, "completion_tokens": 1}) for n in range(1, 6)]
    file.write_text("\n".join(lines[:3]))
    assert "accepted 3, " in (await send(str(file))).stdout
    file.write_text("\n".join(lines))
    assert "accepted 2, ignored 0, rejected 0, sent before 3" == counts(await send(str(file)))
    assert 5 == len(await serving.records())


async def test_another_key_has_sent_nothing(send: Send, serving: Serving, tmp_path: Path) -> None:
    """
    With another key, a file counts as not sent yet, because the key may belong to another server at
    the same address.
    """
    file = tmp_path / "one.json"
    file.write_bytes((CASES / "litellm/slp-public-minimal.json").read_bytes())
    assert "accepted 1, " in (await send(str(file))).stdout
    other = await serving.make_key("other", scopes=[INGEST])
    assert "accepted 1, ignored 0, rejected 0" == counts(await send(str(file), key=other))
    assert 1 == len(await serving.records())


async def test_what_cannot_be_remembered_is_sent_all_the_same(
    send: Send, serving: Serving, tmp_path: Path
) -> None:
    """If the state directory cannot be written, one warning is printed and everything is sent."""
    (tmp_path / "state").write_text("no directory")
    file = tmp_path / "many.ndjson"
    row = json.loads((CASES / "litellm/slp-public-minimal.json").read_bytes())
    file.write_text("\n".join(json.dumps(row | {"id": f"chatcmpl-{n:020d}"}) for n in range(600)))
    result = await send(str(file))
    assert result.exit_code == 0
    assert counts(result) == "accepted 600, ignored 0, rejected 0"
    assert 1 == result.stderr.count("cannot skip what is sent now")


async def test_body_over_the_server_limit_is_halved(serve: Serve, tmp_path: Path) -> None:
    """A body over the server's limit is halved. Only an item that exceeds the limit by itself is refused."""
    serving = await serve(max_body_bytes=16 * 1024)
    row = json.loads((CASES / "litellm/slp-public-minimal.json").read_bytes())
    rows = [row | {"id": f"chatcmpl-{n:020d}", "messages": "x" * (n == 70) * 20_000} for n in range(100)]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "TOLLHOUSE_KEY": serving.key}
    arguments = ["send", str(file), "--to", serving.url]
    result = await asyncio.to_thread(CliRunner(env=environment).invoke, main, arguments)
    assert result.exit_code == 1
    assert len(await serving.records()) == 99
    assert "accepted 99, ignored 0, rejected 1\n  rejected as refused: 1" == counts(result)
    assert 1 == result.stderr.count("413")


@pytest_asyncio.fixture
async def moody() -> AsyncIterator[tuple[str, list[web.Response | None], list[bytes]]]:
    """Start a server that gives the listed answers in order. The answer None drops the connection."""
    answers: list[web.Response | None] = []
    seen: list[bytes] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(await request.read())
        if (answer := answers.pop(0)) is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return answer

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", answers, seen
    await runner.cleanup()


async def test_courier_repeats_after_temporary_failures(
    moody: tuple[str, list[web.Response | None], list[bytes]],
) -> None:
    """
    After a dropped connection, a 503 with a retry time and a 429, the courier sends the same bytes again and
    returns the counts.
    """
    url, answers, seen = moody
    receipt = {"Tollhouse-Receipt": "id=x; records=3; ignored=1; rejected=2; durability=fsync"}
    answers += [
        None,
        web.Response(status=503, headers={"Retry-After": "7"}),
        web.Response(status=429, headers={"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}),
        web.Response(status=204, headers=receipt),
    ]
    slept: list[float] = []
    told: list[str] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with upload.new_http_session() as session:
        answer = await upload.UploadClient(
            session, url, "key", notify=told.append, sleep=sleep
        ).send_until_answered(UploadBody(items=[b"{}"]))
    assert ["Server disconnected", "503: no reason given", "429: no reason given"] == [
        each.partition("; trying again in ")[0] for each in told
    ]
    assert ["(2 of 8)", "(3 of 8)", "(4 of 8)"] == [each.rpartition(" s ")[2] for each in told]
    assert answer.accepted == 3
    assert answer.ignored == 1
    assert dict(answer.rejected) == {"unnamed reason": 2}
    assert [b"{}"] * 4 == seen
    assert len(slept) == 3
    assert slept[1] == 7.0
    assert (
        1.0 <= slept[0] <= 2.0 < 4.0 <= slept[2] <= 8.0
    )  # a retry date in the past does not shorten the wait


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, upload.BodyRefused),
        (413, upload.BodyTooLarge),
        (401, upload.Undeliverable),
        (302, upload.Undeliverable),
        (200, upload.Undeliverable),
    ],
)
async def test_the_courier_does_not_repeat_the_rest(
    moody: tuple[str, list[web.Response | None], list[bytes]], status: int, error: type[Exception]
) -> None:
    """
    A redirect is not followed, because the key would go along. A 2xx without a receipt is not
    from a Tollhouse gateway.
    """
    url, answers, seen = moody
    answers.append(web.Response(status=status, headers={"Location": url}))
    async with upload.new_http_session() as session:
        with pytest.raises(error):
            await upload.UploadClient(session, url, "key").send_until_answered(UploadBody(items=[b"{}"]))
    assert 1 == len(seen)


async def test_an_address_at_which_nobody_listens_is_given_up_soon() -> None:
    """Each attempt is reported with its wait, in our own words. For plain http, no message mentions TLS."""
    slept: list[float] = []
    told: list[str] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    url = f"http://127.0.0.1:{free_port()}"
    async with upload.new_http_session() as session:
        client = upload.UploadClient(session, f"{url}/v1/traces", None, notify=told.append, sleep=sleep)
        with pytest.raises(upload.Undeliverable, match="check that Tollhouse is running there") as given_up:
            await client.send_until_answered(UploadBody(items=[b"{}"]))
    assert sum(slept) <= upload.UNHEARD_S
    assert len(slept) == len(told) >= 2
    assert all(
        each.startswith(f"no server listens at {url} (Connect") and "trying again in" in each for each in told
    )
    assert "ssl" not in f"{told}{given_up.value}"


async def test_the_courier_gives_up_in_the_end(
    moody: tuple[str, list[web.Response | None], list[bytes]],
) -> None:
    """The courier gives up after eight attempts. The next run sends the rest."""
    url, answers, seen = moody
    answers += [web.Response(status=500) for _ in range(upload.ATTEMPTS)]

    async def sleep(_: float) -> None:
        pass

    async with upload.new_http_session() as session:
        with pytest.raises(upload.Undeliverable, match="8 attempts"):
            await upload.UploadClient(session, url, None, sleep=sleep).send_until_answered(
                UploadBody(items=[b"{}"])
            )
    assert upload.ATTEMPTS == len(seen)


@pytest.mark.proves("times, rejected lines, `--json`")
async def test_rejected_items_are_named_by_line(send: Send, serving: Serving, tmp_path: Path) -> None:
    """
    A rejected item is named by line and reason, never by value, in text and in JSON. Blank lines count, and
    later batches keep the line numbers of the file.
    """
    row = json.loads((CASES / "litellm/slp-public-minimal.json").read_bytes())
    lines = [json.dumps({**row, "id": f"chatcmpl-{n}"}) for n in range(700)]
    lines[0] = ""
    lines[600], lines[601] = "secret words", json.dumps({**row, "id": "chatcmpl-bad", "prompt_tokens": -1})
    lines[650] = f"[{lines[650]}, 7]"
    file = tmp_path / "rows.ndjson"
    file.write_text("\n".join(lines))
    result = await send(str(file))
    assert result.exit_code == 1
    assert len(await serving.records()) == 697
    told = [line.removeprefix(f"tollhouse: {file}, ") for line in result.stderr.splitlines()]
    assert ["line 601", "line 602", "line 651"] == sorted(line.partition(":")[0] for line in told)
    assert ["implausible", "malformed", "malformed"] == sorted(line.split(": ")[1] for line in told)
    listed = json.loads((await send(str(file), "--again", "--json")).stdout)
    assert listed["reasons"] == {"implausible": 1, "malformed": 2}
    assert {(str(file), f"line {n}") for n in (601, 602, 651)} == {
        (each["file"], each["place"].partition(",")[0]) for each in listed["items"]
    }
    assert "secret" not in f"{result.output}{listed}"


async def test_many_rejected_items_are_counted(send: Send, tmp_path: Path) -> None:
    """Only the first rejected items are named. Elements of an array are named by their number."""
    good = (CASES / "litellm/slp-public-minimal.json").read_text()
    file = tmp_path / "rows.json"
    file.write_text("[\n" + ",\n".join([*["5"] * 30, good]) + "\n]")
    told = (await send(str(file), "--as", "litellm")).stderr.splitlines()
    assert 21 == len(told)
    assert (
        f"tollhouse: {file}, element 1: malformed: "
        == told[0][: len(f"tollhouse: {file}, element 1: malformed: ")]
    )
    assert "tollhouse: 10 more items were rejected; only the first 20 are listed above" == told[-1]


async def test_a_request_of_many_items_is_named_by_its_line(send: Send, tmp_path: Path) -> None:
    """In formats with several items per line, such as OTLP, the line and the item within it are named."""
    good = json_span("gpt-4o")
    file = tmp_path / "requests.ndjson"
    file.write_bytes(
        json_traces(good) + b"\n" + json_traces(good, {**good, "spanId": "no hexadecimal digits"}) + b"\n"
    )
    result = await send(str(file))
    assert "rejected 1" in result.stdout
    [told] = result.stderr.splitlines()
    assert told.startswith(f"tollhouse: {file}, line 2, item 2: malformed: "), told


async def test_events_are_sent_and_counted_once(serve: Serve, tmp_path: Path) -> None:
    """
    An event by flags has its amount. A file of events is sent once, and a rejected event is named by its line. If
    the cost service gets no stream for the type, the command says how to set it up.
    """
    upstream = UpstreamSettings(base_url="http://127.0.0.1:9")  # nothing listens at this address
    settings = SpoolSettings(hold=0, counter_wait=0)
    unmapped = await serve(config=Config(spool=settings, upstream=upstream))
    key = await unmapped.make_key("events", scopes=[CREATE_EVENT])
    runner = CliRunner(env={"XDG_STATE_HOME": str(tmp_path / "state"), "TOLLHOUSE_KEY": key})

    async def run(*words: str) -> Result:
        return await asyncio.to_thread(runner.invoke, main, ["events", "send", "--to", unmapped.url, *words])

    one = await run("--type", "page", "--amount", "3", "--subject", "acme", "--value", "plan=pro")
    assert one.exit_code == 0, one.output
    assert "accepted 1, ignored 0, rejected 0" in one.output
    assert '"page"' in one.output and "[upstream.events]" in one.output
    file = tmp_path / "events.jsonl"
    file.write_text('{"type": "order", "amount": 2}\n{"id": "1"}\n{"type": "order", "amount": 4}\n')
    sent = await run(str(file))
    assert sent.exit_code == 1
    assert "line 2: malformed: type is required" in sent.output
    assert "sent before 3" in (await run(str(file))).output
    log = unmapped.app.services.storage.log
    entries = await log.read(USAGE_EVENTS, 1, log.lowest_open_number(USAGE_EVENTS) - 1)
    stored = [record for entry in entries for record in entry.records if isinstance(record, UsageEvent)]
    assert [event_amount(upstream, record) for record in stored] == [3, 2, 4]
    assert stored[0].subject == "acme"
    assert stored[0].data == {"amount": 3, "plan": "pro"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give FILEs to send, or --type TYPE"),
        (["--type", "page", "file.json"], "give FILEs to send, or --type TYPE"),
        (["file.json", "--amount", "3"], "belong to --type"),
        (["--type", "page", "--amount", "many"], "--amount: 'many' is not a number"),
        (["--type", "page", "--value", "plan"], "--value: 'plan' is not NAME=VALUE"),
    ],
)
def test_wrong_use_of_events_send_is_exit_2(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["events", "send", *words])
    assert result.exit_code == 2
    assert message in result.output


async def test_a_refused_key_is_followed_by_the_command_for_the_right_one(
    serve: Serve, tmp_path: Path
) -> None:
    """
    If the key is refused, `tollhouse send` prints the command that creates a key with the right scope. Such a key
    is then accepted.
    """
    serving = await serve()
    wrong = await serving.make_key("billing", scopes=["billing:read_costs"])
    for words in (("events", "send", "--type", "order"), ("send", "--example", "litellm")):
        env = {"XDG_STATE_HOME": str(tmp_path / "state"), "TOLLHOUSE_KEY": wrong}
        command = [*words, "--to", serving.url]
        refused = await asyncio.to_thread(CliRunner(env=env).invoke, main, command)
        assert refused.exit_code == 1
        found = re.search(r"403: .* On the gateway, `tollhouse ([^`]+)` creates such a key", refused.stderr)
        assert found is not None, refused.output
        made = await asyncio.to_thread(
            CliRunner().invoke,
            main,
            [*shlex.split(found[1]), "--json", "--data", str(serving.app.config.data_dir)],
        )
        env["TOLLHOUSE_KEY"] = json.loads(made.stdout)["secret"]
        accepted = await asyncio.to_thread(CliRunner(env=env).invoke, main, command)
        assert "accepted 1" in accepted.output


async def test_a_short_report_says_that_another_call_waits(serve: Serve, tmp_path: Path) -> None:
    """
    A report that shows other calls says on stderr that one more call waits for a second report, so it does not look
    complete.
    """
    config = Config(data_dir=tmp_path / "data-0", spool=SpoolSettings(hold=0.0))
    async with open_storage(config, clock=MovedClock(time.time() - 3600)) as storage:
        await add(storage.log, call(1, at=time.time() - 3700, request_model="gpt-4o"))
    serving = await serve(config=Config(spool=SpoolSettings(hold=600)))
    words = ["report", "--range", "last_7d", "--data", str(tmp_path / "data-0")]
    before = await asyncio.to_thread(CliRunner().invoke, main, words)
    now = time.time_ns()
    span = json_span(startTimeUnixNano=str(now - 10**9), endTimeUnixNano=str(now))
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    after = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert "gpt-4o" in before.stdout
    assert before.stdout == after.stdout
    assert ("", True) == (before.stderr, "1 call waits for a second report" in after.stderr)


async def test_a_report_says_that_a_call_waits(serve: Serve, tmp_path: Path) -> None:
    """
    While a call waits for a second report, an empty cost report says when the call counts. A report of an earlier
    period does not mention it.
    """
    serving = await serve(config=Config(spool=SpoolSettings(hold=600)))

    now = time.time_ns()
    span = json_span(startTimeUnixNano=str(now - 10**9), endTimeUnixNano=str(now))
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status

    async def told(*words: str) -> str:
        arguments = ["report", "--data", str(tmp_path / "data-0"), *words]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert result.exit_code == 0, result.output
        return result.stderr

    found = re.search(r"1 call waits for a second report and counts in (\d+) s", await told())
    assert found is not None
    assert 0 < int(found[1]) <= 600
    assert "no calls in this period" in await told("--range", "last_month")
