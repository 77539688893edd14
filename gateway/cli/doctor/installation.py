"""What is known of this installation: its configuration, its state, its keys, and where its records go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import aiohttp

from exporters.check import StreamCheck, check_channels
from exporters.probe import OK as TAKEN
from exporters.probe import REFUSED, UNAVAILABLE, UNUSED
from gateway.cli.check import file_problems, missed_by_assistants, try_provider, try_receivers
from gateway.cli.doctor.diagnosis import NOTE, OK, PROBLEM, WARNING, Diagnosis
from gateway.cli.operator.client import OperatorClient
from gateway.configuration.sections import Config, ConfigError
from spool.clock import SystemClock
from spool.engines import engine_of
from spool.errors import SpoolError
from spool.registry.keys import ENABLED
from spool.settings import LOCAL

_TRIED = {TAKEN: OK, REFUSED: PROBLEM, UNAVAILABLE: PROBLEM}  # by the status of a probe

State = dict[str, Mapping[str, Any]]  # path of the operator API -> its answer


def installation(config: Config, state: State, trouble: str) -> Iterator[Diagnosis]:
    """Looks at the configuration, and at the answers of the operator API; `trouble` says why there are none."""
    problems = list(file_problems(config))
    for problem in problems:
        yield Diagnosis(about="configuration", status=PROBLEM, words=problem)
    if not problems:
        yield Diagnosis(about="configuration", status=OK, words="every file that it names can be read")
    if trouble:
        yield Diagnosis(about="storage", status=PROBLEM, words=trouble)
    if "/status" in state:
        yield from _status(state["/status"])
        yield from _lakes(state["/status"])
    if "/clock" in state and (step_s := state["/clock"]["clock"]["step_s"]):
        words = f"it was moved by {step_s:+,.0f} s and is not believed (tollhouse spool accept-clock)"
        yield Diagnosis(about="clock of the server", status=PROBLEM, words=words)
    if "/verify" in state:
        yield _books(state["/verify"])
    unconverted = state.get("/report", {}).get("report", {}).get("unconverted")
    if unconverted:
        amounts = ", ".join(f"{amount} {currency}" for currency, amount in unconverted.items())
        words = (
            f"no rate is known for {amounts} of the last 30 days: [currency] rates_file, or [[currency.rate]]"
        )
        yield Diagnosis(about="currencies", status=WARNING, words=words)
    if "/keys" in state:
        yield from _keys(state["/keys"]["keys"])
        not_open = state["/keys"].get("not_open")
        if not_open:
            yield Diagnosis(about="key file", status=WARNING, words=not_open)


def read_state(config: Config) -> tuple[State, str]:
    """The operator API's answers, from the running server or from the data directory; else why there are none."""
    try:
        engine = engine_of(config.storage.engine)
        if engine.administration is None and engine.is_new(config.data_dir):
            return {}, ""
    except OSError as error:
        return {}, f"{config.data_dir}: {error.strerror}"
    client = OperatorClient(config, "tollhouse doctor")
    state: State = {}
    for path, query in (
        ("/status", []),
        ("/clock", []),
        ("/verify", []),
        ("/keys", [("limit", "1000")]),
        ("/report", [("range", "last_30d"), ("show", "cost")]),
    ):
        try:
            status, payload = asyncio.run(client.ask("GET", path, query=query))
        except ConfigError as error:
            return state, "; ".join(error.problems)
        except (SpoolError, OSError, aiohttp.ClientError) as error:
            return state, str(error)
        except SystemExit:
            return state, "Tollhouse is starting or stopping, or does not answer"
        if status >= 400:
            return state, str(payload["error"]["message"])
        state[path] = payload
    return state, ""


def shared_storage(config: Config) -> Iterator[Diagnosis]:
    """Looks at a database that several nodes share; nothing to say of files."""
    administration = engine_of(config.storage.engine).administration
    if administration is None:
        return

    async def ask() -> tuple[Mapping[str, Any], Sequence[str]]:
        return await administration.status(config.storage), await administration.lost(
            config.storage, config.data_dir
        )

    try:
        status, lost = asyncio.run(ask())
    except SpoolError as error:
        yield Diagnosis(about="database", status=PROBLEM, words=str(error))
        return
    words = (
        status["problem"]
        or f"{status['server']}, {status['durability']}, answered in {status['answer_ms']} ms"
    )
    yield Diagnosis(about="database", status=PROBLEM if status["problem"] else OK, words=words)
    for loss in lost:
        yield Diagnosis(about="acknowledged", status=PROBLEM, words=loss)
    if config.storage.durability == LOCAL:
        words = 'storage.durability = "local": a 2xx rests on the disk of one machine'
        yield Diagnosis(about="database", status=WARNING, words=words)


def receivers(config: Config) -> Iterator[Diagnosis]:
    """
    Tries the upstream, the destinations and the channels; an empty export goes to those that speak
    OTLP, and the marked call to a Tollhouse, which counts it nowhere.
    """
    streams, destinations = asyncio.run(try_receivers(config))
    if not streams:
        yield Diagnosis(about="upstream", status=NOTE, words="none: records are kept, priced and shown here")
    for stream in streams:
        yield Diagnosis(about=f"upstream {stream.stream}", status=_verdict(stream), words=_words(stream))
    for each in destinations:
        words = f"{each.to}: {each.words or each.status}"
        yield Diagnosis(about=f"destination {each.name}", status=_TRIED.get(each.status, NOTE), words=words)
    for channel in asyncio.run(check_channels(config.notify, clock=SystemClock())):
        words = f"{channel.to or channel.type}: {channel.words or channel.status}"
        yield Diagnosis(about=f"channel {channel.name}", status=_TRIED.get(channel.status, NOTE), words=words)
    if config.oidc.issuer:
        problem = asyncio.run(try_provider(config))
        words = problem or "its addresses and keys were found"
        yield Diagnosis(about=f"sign-in {config.oidc.issuer}", status=PROBLEM if problem else OK, words=words)
    for words in asyncio.run(missed_by_assistants(config)):
        yield Diagnosis(about=f"assistants {config.mcp.oauth.resource}", status=NOTE, words=words)


def _verdict(stream: StreamCheck) -> str:
    if stream.status == UNUSED or stream.key is None:
        return NOTE
    return _TRIED.get(stream.status, NOTE)


def _words(stream: StreamCheck) -> str:
    if stream.status == UNUSED:
        return f"not sent: {stream.words}"
    if stream.key is None:
        return f"no key grants {stream.scope}: its records would wait here until one does"
    return f"{stream.words or stream.status}, under the key {stream.key} for {stream.scope}"


def _status(status: Mapping[str, Any]) -> Iterator[Diagnosis]:
    space = status["space"]
    used = f"{space['entries']} entries, {space['bytes'] / space['max_bytes']:.1%} of spool.max_bytes"
    if space["writable"]:
        yield Diagnosis(about="storage", status=OK, words=used)
    else:
        words = f"{used}: {space['last_error'] or 'nothing can be kept: the spool is full'}"
        yield Diagnosis(about="storage", status=PROBLEM, words=words)
    if space["wal_problem"]:
        yield Diagnosis(
            about="checkpoints", status=WARNING, words=f"the log beside the file {space['wal_problem']}"
        )
    for route in status["routes"]:
        if route["state"] != "running":
            words = (
                f"{route['state']}, {route['queued']} records wait: {route['reason'] or 'no reason is known'}"
            )
            yield Diagnosis(about=f"route {route['route']}", status=PROBLEM, words=words)
        # A server of an earlier release does not count them.
        if count := route.get("refused_24h"):
            words = f"the destination rejected {count} records within 24 hours and accepted others"
            reason = f": {route['refusal']}" if route["refusal"] else ""
            yield Diagnosis(
                about=f"route {route['route']}",
                status=PROBLEM,
                words=f"{words}{reason} (tollhouse spool refused)",
            )


def _lakes(status: Mapping[str, Any]) -> Iterator[Diagnosis]:
    """Describe what the server knows of lakes; nothing of an answer of a release without them."""
    for lake in status.get("lakes", ()):
        about = f"lake {lake['route']}"
        landed = (
            f"the newest delivery landed at {lake['landed_at']}"
            if lake["landed_at"]
            else "nothing landed yet"
        )
        verified = lake["verified"]
        if verified is None:
            yield Diagnosis(about=about, status=NOTE, words=f"{landed}; nobody looked at it yet")
        elif verified["differences"]:
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(verified["differences"].items()))
            words = f"{landed}; at {verified['at']} it differed: {kinds} (tollhouse lake verify names each)"
            yield Diagnosis(about=about, status=PROBLEM, words=words)
        else:
            files = verified["files"]
            what = f"its {files} files were as the manifests say" if files else "it was as the books say"
            words = f"{landed}; at {verified['at']} {what}"
            yield Diagnosis(about=about, status=OK, words=words)


def _books(books: Mapping[str, Any]) -> Diagnosis:
    if books["balanced"]:
        return Diagnosis(about="books", status=OK, words="recounted, they balance")
    return Diagnosis(about="books", status=PROBLEM, words="; ".join(books["imbalances"][:3]))


def _keys(keys: Sequence[Mapping[str, Any]]) -> Iterator[Diagnosis]:
    enabled = [key for key in keys if key["status"] == ENABLED]
    wide = [key["name"] for key in enabled if key["scope_count"] > 1]
    if not enabled:
        yield Diagnosis(about="keys", status=NOTE, words="no key is enabled: nobody can send")
    elif wide:
        words = f"of {len(enabled)} keys these have more than one scope: {', '.join(sorted(wide)[:10])}"
        yield Diagnosis(about="keys", status=NOTE, words=words)
    else:
        yield Diagnosis(about="keys", status=OK, words=f"{len(enabled)} enabled, each with one scope")
