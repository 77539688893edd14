"""`tollhouse send` against a real house, and against one that is not ready yet."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from click.testing import CliRunner, Result

from gateway.cli import courier, main
from gateway.cli.cuts import Body
from tests.integration.conftest import Serving

pytestmark = pytest.mark.asyncio

CASES = Path(__file__).parents[1] / "cases/gateway"

Send = Callable[..., "asyncio.Future[Result]"]


@pytest.fixture
def send(serving: Serving, tmp_path: Path) -> Send:
    """The command with the house's address and key; its memory is the test's own."""

    def run(
        *words: str, input: bytes | None = None, key: str | None = None, to: str | None = None
    ) -> asyncio.Future[Result]:
        environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "TOLLHOUSE_KEY": serving.key if key is None else key}
        arguments = ["send", *words, "--to", serving.url]
        return asyncio.ensure_future(asyncio.to_thread(CliRunner(env=environment).invoke, main, arguments, input=input))

    return run


async def test_a_directory_of_every_kind_arrives_once(send: Send, serving: Serving, tmp_path: Path) -> None:
    """Documents, arrays, lines and gzip; a second run sends nothing, and `--again` counts nothing twice."""
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "batch.json").write_bytes((CASES / "litellm/slp-batch-array.json").read_bytes())
    (directory / "rows.json.gz").write_bytes(gzip.compress((CASES / "kong/http-log-two-llm-blocks.json").read_bytes()))
    (directory / "lines.ndjson").write_bytes((CASES / "litellm/slp-stream-and-azure.ndjson").read_bytes())
    (directory / "span.json").write_bytes((CASES / "cloudflare/otel-span.json").read_bytes())
    first = await send(str(directory))
    assert (0, "accepted 8, ignored 0, rejected 0\n") == (first.exit_code, first.stdout)
    second = await send(str(directory))
    assert (0, "accepted 0, ignored 0, rejected 0, sent before 7\n") == (second.exit_code, second.stdout)
    again = await send(str(directory), "--again")
    assert (0, "accepted 8, ignored 0, rejected 0\n") == (again.exit_code, again.stdout)
    assert 8 == len(await serving.records())


@pytest.mark.parametrize("format", ["litellm", "langfuse", "openmeter", "otlp/traces"])
async def test_an_example_is_a_first_record(send: Send, serving: Serving, format: str) -> None:
    """Each time another one, under whatever answer the format has."""
    for _ in range(2):
        result = await send("--example", format)
        assert (0, True) == (result.exit_code, result.stdout.startswith("accepted 1, ")), result.output
    assert 2 == len(await serving.records())


async def test_rejects_are_counted_by_reason(send: Send, serving: Serving) -> None:
    """From the standard input, with the format named."""
    events = json.loads((CASES / "litellm/slp-batch-array.json").read_bytes())
    events += [None, 5, events[0] | {"prompt_tokens": -1}]
    result = await send("-", "--as", "litellm", input=json.dumps(events).encode())
    assert 0 == result.exit_code
    assert [
        "accepted 3, ignored 1, rejected 2", "  rejected as implausible: 1", "  rejected as malformed: 1",
    ] == result.stdout.splitlines()  # fmt: skip


async def test_bad_files_do_not_keep_the_good_ones(send: Send, serving: Serving, tmp_path: Path) -> None:
    """Each is named on its own line, and the exit code says that something is left."""
    good, bad, odd = (tmp_path / name for name in ("good.json", "bad.json", "odd.json"))
    good.write_bytes((CASES / "litellm/slp-public-minimal.json").read_bytes())
    bad.write_text("not json")
    odd.write_text('{"nobody": "knows this"}')
    result = await send(str(bad), str(tmp_path / "missing.json"), str(odd), str(good))
    assert (1, 1) == (result.exit_code, len(await serving.records()))
    assert 3 == len(result.stderr.splitlines())
    assert "accepted 1, ignored 0, rejected 1" in result.stdout


async def test_a_wrong_key_ends_the_run(send: Send, tmp_path: Path) -> None:
    """With the gateway's own words, and nothing is remembered as sent."""
    file = tmp_path / "one.json"
    file.write_bytes((CASES / "litellm/slp-public-minimal.json").read_bytes())
    wrong = await send(str(file), key="th_wrong")
    assert (1, True) == (wrong.exit_code, "401" in wrong.stderr)
    key_file = tmp_path / "key"
    key_file.write_text("th_wrong\n")
    assert "401" in (await send(str(file), "--key-file", str(key_file))).stderr
    assert 0 == (await send(str(file))).exit_code


@pytest.mark.parametrize("words", [(), ("x.json", "--example", "kong"), ("--example", "smoke"), ("x", "--as", "smoke")])
async def test_wrong_use_is_exit_2(send: Send, words: tuple[str, ...]) -> None:
    """Nothing to send, two things at once, a format that there is not."""
    assert 2 == (await send(*words)).exit_code


@pytest_asyncio.fixture
async def moody() -> AsyncIterator[tuple[str, list[web.Response | None], list[bytes]]]:
    """A server that answers what it is told to, in order; None drops the connection."""
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


async def test_the_courier_repeats_what_a_repeat_can_mend(
    moody: tuple[str, list[web.Response | None], list[bytes]],
) -> None:
    """A dropped connection, 503 with its own time, 429: the same bytes again, then the answer's counts."""
    url, answers, seen = moody
    receipt = {"Tollhouse-Receipt": "id=x; records=3; ignored=1; rejected=2; durability=fsync"}
    answers += [
        None,
        web.Response(status=503, headers={"Retry-After": "7"}),
        web.Response(status=429),
        web.Response(status=204, headers=receipt),
    ]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with courier.session() as session:
        answer = await courier.Courier(session, url, "key", sleep=sleep).send(Body(b"{}", 1))
    assert (3, 1, {"not said": 2}) == (answer.accepted, answer.ignored, dict(answer.rejected))
    assert [b"{}"] * 4 == seen
    assert (3, 7.0) == (len(slept), slept[1])


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, courier.Refused), (413, courier.Refused), (401, courier.Undeliverable), (302, courier.Undeliverable)],
)
async def test_the_courier_does_not_repeat_the_rest(
    moody: tuple[str, list[web.Response | None], list[bytes]], status: int, error: type[Exception]
) -> None:
    """A redirect is not followed: the key would go along."""
    url, answers, seen = moody
    answers.append(web.Response(status=status, headers={"Location": url}))
    async with courier.session() as session:
        with pytest.raises(error):
            await courier.Courier(session, url, "key").send(Body(b"{}", 1))
    assert 1 == len(seen)


async def test_the_courier_gives_up_in_the_end(moody: tuple[str, list[web.Response | None], list[bytes]]) -> None:
    """After eight attempts; what is left is sent by the next run."""
    url, answers, seen = moody
    answers += [web.Response(status=500) for _ in range(courier.ATTEMPTS)]

    async def sleep(_: float) -> None:
        pass

    async with courier.session() as session:
        with pytest.raises(courier.Undeliverable, match="8 attempts"):
            await courier.Courier(session, url, None, sleep=sleep).send(Body(b"{}", 1))
    assert courier.ATTEMPTS == len(seen)
