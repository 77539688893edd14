"""Container metrics over real sockets: the requests of a cluster's agent, and the answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.sections import Config
from gateway.operations.clusters import container_metrics
from spool.container_files.files import ContainerFiles
from spool.container_files.values import FILE, REMOTE_WRITE, STATUS, ClusterIdentity
from spool.settings import ContainerSettings, SpoolSettings
from tests.integration import container_agent as agent
from tests.integration.conftest import ACTOR, Answer, Serve, Serving
from tests.integration.container_agent import BASE, CLUSTER


async def made(serve: Serve, **limits: Any) -> tuple[Serving, str]:
    """Start a server with limits for container metrics; return it with the agent's key."""
    settings = replace(ContainerSettings(), **limits)
    server = await serve(config=Config(spool=SpoolSettings(hold=0), container=settings))
    return server, await server.make_key("agent", scopes=agent.SCOPES)


def kept(server: Serving) -> ContainerFiles:
    return server.app.services.storage.container_files


def urls(answer: Answer) -> dict[str, str]:
    assert 200 == answer.status, answer.body
    found: dict[str, str] = json.loads(answer.body)
    return found


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["error"]["type"]


async def waiting(server: Serving, kind: str = FILE) -> dict[str, bytes]:
    """Return the files that wait for the upstream, by reference."""
    files = kept(server)
    found = {}
    for file in await files.due_files(kind, limit=1000):
        found[file.reference] = file.body or b"".join([piece async for piece in files.contents.read(file.id)])
    return found


async def test_the_agents_start_passes(serve: Serve) -> None:
    """At its start, the agent queries the insights address. A valid key gets 200, an unknown one 401."""
    server, key = await made(serve)
    answers = [await server.send("/v2/insights", b"", method="GET", key=one) for one in (key, "unknown")]
    assert [200, 401] == [answer.status for answer in answers]


async def test_files_are_announced_and_sent(serve: Serve) -> None:
    """
    Each file gets its own upload address, under the host of the request. The same bytes then wait for the upstream.
    """
    server, key = await made(serve)
    data = {f"{n}.parquet": bytes([n]) * 300_000 for n in range(3)}
    given = urls(await agent.announce(server, list(data), key))
    assert set(data) == set(given)
    assert all(url.startswith(f"{server.url}{BASE}/files/") for url in given.values())
    assert [200] * 3 == [(await agent.put(server, given[name], body)).status for name, body in data.items()]
    assert data == await waiting(server)
    [file, *_] = await kept(server).due_files(FILE, limit=1)
    assert file.identity == CLUSTER
    assert file.key == "agent"
    assert file.shipper == agent.SHIPPER
    assert file.agent_version == "1.2.12"


async def test_nothing_to_announce_is_no_mistake(serve: Serve) -> None:
    server, key = await made(serve)
    assert {} == urls(await agent.announce(server, [], key))


async def test_repeated_upload_changes_nothing(serve: Serve) -> None:
    """
    A repeated upload gets the same answer, under the old and a new address. Other bytes under the same
    name are refused.
    """
    server, key = await made(serve)
    first = urls(await agent.announce(server, ["one"], key))["one"]
    again = urls(await agent.announce(server, ["one", "one"], key))["one"]
    assert [200] * 3 == [(await agent.put(server, url, b"first")).status for url in (first, first, again)]
    other = await agent.put(server, again, b"second")
    assert 400 == other.status
    assert b"another file was already stored under this reference_id" in other.body
    assert {"one": b"first"} == await waiting(server)


async def test_the_configured_address_is_given_out(serve: Serve) -> None:
    """
    If an address for uploads is configured, it is given out, because behind a proxy agents cannot reach the host of
    their request.
    """
    server, key = await made(serve, upload_url="https://tollhouse.example.com/")
    url = urls(await agent.announce(server, ["one"], key))["one"]
    assert url.startswith(f"https://tollhouse.example.com{BASE}/files/")


async def test_an_address_ends_with_its_time(serve: Serve) -> None:
    """
    When an upload address has expired, the error has the words that the agent looks for. A forged address is
    refused before its body is read.
    """
    server, key = await made(serve)
    url = urls(await agent.announce(server, ["one"], key))["one"]
    place, _, token = url.rpartition("/")
    id, until, number, signature = token.split("-")
    wrong = ((id, f"{int(until) + 9}", number), ("0" * 32, until, number), (id, until, "9"), (id, until))
    for forged in (*("-".join([*words, signature]) for words in wrong), "x", f"{token}0"):
        assert (403, "invalid_address") == error(await agent.put(server, f"{place}/{forged}", b"x"))
    services = server.app.services
    secret = container_metrics.derive_upload_address_secret(services.storage.secret)
    late = container_metrics.signed_upload_address_token(
        secret, id, services.receivers.clock.now() - 2, key=None
    )
    answer = await agent.put(server, f"{place}/{late}", b"x")
    assert (403, "expired") == error(answer)
    assert b"Request has expired" in answer.body
    unknown = container_metrics.signed_upload_address_token(
        secret, "0" * 32, services.receivers.clock.now() + 60, key=None
    )
    assert (403, "expired") == error(await agent.put(server, f"{place}/{unknown}", b"x"))
    assert {} == await waiting(server)


@pytest.mark.parametrize("end", ["delete", "disable"])
async def test_an_address_ends_with_its_key(serve: Serve, end: str) -> None:
    """
    An upload address ends with its key, even for a file that is already known. A rotated key is still
    the same key.
    """
    server, key = await made(serve)
    given = urls(await agent.announce(server, ["known", "new"], key))
    registry = server.app.services.storage.registry
    assert registry is not None
    await registry.keys.rotate("agent", overlap_s=0, actor=ACTOR)
    assert 200 == (await agent.put(server, given["known"], b"known")).status
    if end == "delete":
        await registry.keys.delete("agent", confirm="agent", actor=ACTOR)
    else:
        await registry.keys.disable("agent", actor=ACTOR)
    for name in given:
        assert (403, "expired") == error(await agent.put(server, given[name], b"late"))
    assert {"known": b"known"} == await waiting(server)


async def test_a_file_must_be_what_was_announced(serve: Serve) -> None:
    """An uploaded file must have the announced size and checksum."""
    server, key = await made(serve)
    right = hashlib.sha256(b"metrics").hexdigest()
    told: list[dict[str, object]] = [
        {"reference_id": "size", "size": 8},
        {"reference_id": "sum", "sha_256": "0" * 64},
        {"reference_id": "right", "sha_256": right, "size": 7},
    ]
    given = urls(await agent.announce(server, told, key))
    statuses = [
        (await agent.put(server, given[name], b"metrics")).status for name in ("size", "sum", "right")
    ]
    assert [400, 400, 200] == statuses
    assert {"right": b"metrics"} == await waiting(server)


async def test_a_file_over_its_limit_is_refused(serve: Serve) -> None:
    """
    A file of exactly the limit is accepted. A larger one gets a 413 that names the setting, even
    without a Content-Length.
    """
    server, key = await made(serve, max_file_bytes=4096)
    given = urls(await agent.announce(server, ["fits", "over"], key))
    assert 200 == (await agent.put(server, given["fits"], b"x" * 4096)).status
    answer = await agent.put(server, given["over"], b"x" * 4097)
    assert (413, "file_too_large") == error(answer)
    assert b"container.max_file_bytes" in answer.body

    async def pieces() -> Any:
        for _ in range(5):
            yield b"x" * 1024

    async with server.client.put(given["over"], data=pieces()) as response:
        assert 413 == response.status
    assert 4096 == kept(server).sums.total_bytes


async def test_a_full_disk_of_files_answers_503(serve: Serve) -> None:
    """
    If the space for files is full, the answer is 503 with a time to retry. Each cluster has its own limit.
    """
    server, key = await made(serve, max_cluster_bytes=4096)
    assert [200] == await agent.ship(server, {"one": b"x" * 4096}, key)
    given = urls(await agent.announce(server, ["two"], key))
    answer = await agent.put(server, given["two"], b"x")
    assert (503, "spool_full") == error(answer)
    assert int(answer.headers["Retry-After"]) > 0
    other = replace_name("other")
    elsewhere = urls(await agent.announce(server, ["two"], key, cluster=other))
    assert 200 == (await agent.put(server, elsewhere["two"], b"x")).status


def replace_name(name: str) -> ClusterIdentity:
    return ClusterIdentity(CLUSTER.account, CLUSTER.region, name)


async def test_too_many_files_are_refused(serve: Serve) -> None:
    """
    A request may announce 200 files, and a key half of `container.max_files`. The operator sees which key is
    near its limit.
    """
    server, key = await made(serve, max_files=600)
    assert 200 == len(urls(await agent.announce(server, [str(n) for n in range(200)], key)))
    assert 400 == (await agent.announce(server, [str(n) for n in range(201)], key)).status
    answer = await agent.announce(server, [f"more-{n}" for n in range(150)], key)
    assert (503, "spool_full") == error(answer)
    assert b"container.max_files" in answer.body
    assert 50 == len(urls(await agent.announce(server, [f"last-{n}" for n in range(50)], key)))
    [share] = await server.app.services.operators.senders.shares()
    assert share.limit == "container.max_files"
    assert share.held == 250
    assert share.most == 300


REQUIRED: Sequence[str] = ["cluster_name", "cloud_account_id", "region"]


async def test_a_missing_parameter_is_named(serve: Serve) -> None:
    """A missing or invalid parameter is named in the error."""
    server, key = await made(serve)
    for missing in REQUIRED:
        words = agent.query().replace(f"{missing}=", "region2=")
        body = b'{"files": []}'
        for path, sent in ((f"{BASE}/upload", body), (f"{BASE}/abandon", b"[]")):
            assert (400, "invalid_parameter") == error(await server.send(path + words, sent, key=key))
            without = "?" + "&".join(
                each for each in agent.query()[1:].split("&") if not each.startswith(missing)
            )
            answer = await server.send(path + without, sent, key=key)
            assert (400, "missing_parameter") == error(answer)
            assert missing.encode() in answer.body
        bad = await server.send(f"{BASE}/upload{agent.query(expiration='soon')}", body, key=key)
        assert (400, "invalid_parameter") == error(bad), missing


async def test_repeated_abandonment_gets_the_same_answer(serve: Serve) -> None:
    """Abandoning a file again gets the same answer, as does an unknown name. Uploaded files stay."""
    server, key = await made(serve)
    assert [200] == await agent.ship(server, {"sent": b"metrics"}, key)
    url = urls(await agent.announce(server, ["gone"], key))["gone"]
    answers = [await agent.abandon(server, ["gone", "sent", "unknown"], key) for _ in range(2)]
    assert [(200, b"{}")] * 2 == [(answer.status, answer.body) for answer in answers]
    assert (403, "expired") == error(await agent.put(server, url, b"late"))
    assert {"sent": b"metrics"} == await waiting(server)


async def test_a_replay_is_handed_on(serve: Serve) -> None:
    """If the upstream requests a file that is missing here, the agent gets a new upload address for it."""
    server, key = await made(serve)
    other = await server.make_key("other agent", scopes=agent.SCOPES)
    assert [200] == await agent.ship(server, {"one": b"metrics"}, key)
    [file] = await kept(server).due_files(FILE, limit=1)
    await kept(server).mark_damaged(file, "gone")
    assert "X-CloudZero-Replay" not in (await agent.announce(server, ["x"], other)).headers
    answer = await agent.announce(server, ["two"], key)
    [asked] = json.loads(answer.headers["X-CloudZero-Replay"])
    assert "one" == asked["ref_id"]
    assert 200 == (await agent.put(server, asked["url"], b"metrics")).status
    assert {"one": b"metrics"} == await waiting(server)
    assert "X-CloudZero-Replay" not in (await agent.announce(server, ["two"], key)).headers


async def test_status_is_stored_and_acknowledged_only_to_its_key(serve: Serve) -> None:
    """
    The status address also accepts a Bearer prefix, unlike the others. Only the key that sent a status learns
    that it was accepted.
    """
    server, key = await made(serve)
    other = await server.make_key("other agent", scopes=agent.SCOPES)
    bearer = {"Authorization": f"Bearer {key}"}
    sent = await server.send(
        f"{BASE}/status", agent.status(), content_type="application/x-protobuf", headers=bearer
    )
    assert sent.status == 200
    assert sent.body == b"{}"
    loaded = await server.send(
        f"{BASE}/status?type=configLoad",
        agent.config(),
        content_type="application/x-protobuf",
        key=key,
        headers={"X-Cloudzero-Config-Status": "configLoad"},
    )
    assert 200 == loaded.status
    assert {"status": agent.status(), "config": agent.config()} == await waiting(server, STATUS)
    cluster = server.app.services.storage.clusters.find_by_name(CLUSTER.account, CLUSTER.region, CLUSTER.name)
    assert cluster is not None
    assert cluster.state == "init_ok"
    assert cluster.k8s_version == "1.31"
    assert cluster.release_name == "cz-agent"
    assert [("api_key_valid", False, "401")] == [(one.name, one.passing, one.error) for one in cluster.checks]
    told = [
        await server.send(f"{BASE}/status{agent.query()}", b"", method="GET", key=one) for one in (key, other)
    ]
    assert [b'{"taken":true}', b'{"taken":false}'] == [answer.body for answer in told]
    refused = await agent.abandon(server, [], f"Bearer {key}")
    assert (401, "bearer_prefix") == error(refused)


NO_STATUS: Sequence[bytes] = [b"", b"\xff\xff", b"no message", b"\x0a\x03abc"]


async def test_what_is_no_status_is_refused(serve: Serve) -> None:
    """An invalid status gets 400 or 415, and nothing is stored."""
    server, key = await made(serve)
    for body in NO_STATUS:
        for words in ("", "?type=configLoad"):
            answer = await server.send(
                f"{BASE}/status{words}", body, content_type="application/x-protobuf", key=key
            )
            assert (400, "bad_payload") == error(answer)
        assert (
            400
            == (await server.send(f"{BASE}/status?type=x", agent.status(), content_type=None, key=key)).status
        ), body
        assert (
            415
            == (
                await server.send(f"{BASE}/status", agent.status(), content_type="text/plain", key=key)
            ).status
        ), body
        assert {} == await waiting(server, STATUS), body


async def test_remote_write_is_stored_unchanged_and_once(serve: Serve) -> None:
    """Repeats are stored once. A body that is empty or lacks its coding is refused."""
    server, key = await made(serve)
    path, snappy = BASE + agent.query(), {"Content-Encoding": "snappy"}
    protobuf: dict[str, Any] = {"content_type": "application/x-protobuf", "key": key}
    for _ in range(2):
        answer = await server.send(path, b"\x07\x18metrics", headers=snappy, **protobuf)
        assert 200 == answer.status
    assert [b"\x07\x18metrics"] == list((await waiting(server, REMOTE_WRITE)).values())
    refused = [
        await server.send(path, b"x", **protobuf),
        await server.send(path, b"x", headers={"Content-Encoding": "br"}, **protobuf),
        await server.send(path, b"", headers=snappy, **protobuf),
        await server.send(BASE, b"x", headers=snappy, **protobuf),
    ]
    assert [415, 415, 400, 400] == [answer.status for answer in refused]
    assert 1 == len(await waiting(server, REMOTE_WRITE))


async def test_an_upload_that_breaks_off_leaves_nothing(serve: Serve) -> None:
    """An interrupted upload leaves neither bytes nor reserved space."""
    server, key = await made(serve)
    url = urls(await agent.announce(server, ["one"], key))["one"]
    path = url.partition(server.url)[2]
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n".encode() + b"x" * 600_000
    )
    await writer.drain()
    directory = Path(server.app.config.data_dir) / "container-files"
    while not list(directory.glob("*.part")):  # noqa: ASYNC110 - another task makes it
        await asyncio.sleep(0.01)
    writer.close()
    while list(directory.glob("*.part")):  # noqa: ASYNC110 - another task removes it
        await asyncio.sleep(0.01)
    assert kept(server).sums.total_bytes == 0
    assert await waiting(server) == {}
    assert 200 == (await agent.put(server, url, b"metrics")).status


async def test_the_configuration_reaches_the_agent(serve: Serve) -> None:
    """A key gets the configuration of only the cluster that it reports, and each version once."""
    server, key = await made(serve)
    other = await server.make_key("other agent", scopes=agent.SCOPES)
    manager = await server.make_key("manager", scopes=["container:update-cluster"])
    path = f"{BASE}/config{agent.query()}"

    async def config(*, by: str = key, **headers: str) -> Answer:
        return await server.send(path, b"", method="GET", key=by, headers=headers)

    assert 404 == (await config()).status
    await server.send(f"{BASE}/status", agent.status(), content_type="application/x-protobuf", key=key)
    first = await config()
    assert first.status == 200
    assert json.loads(first.body) == {"version": None, "config": {}}
    cluster = server.app.services.storage.clusters.find_by_name(CLUSTER.account, CLUSTER.region, CLUSTER.name)
    assert cluster is not None
    given = {"scrape_interval": "60s", "labels": {"pods": ["team"]}}
    one = f"/v2/container/clusters/{cluster.id}"
    changed = await server.send(one, json.dumps({"config": given}).encode(), method="PATCH", key=manager)
    version = json.loads(changed.body)["cluster"]["config_version"]
    told = await config(**{"If-None-Match": first.headers["ETag"]})
    assert told.status == 200
    assert json.loads(told.body) == {"version": version, "config": given}
    again = await config(**{"If-None-Match": told.headers["ETag"]})
    assert again.status == 304
    assert again.body == b""
    assert 404 == (await config(by=other)).status
    assert 403 == (await config(by=manager)).status


async def test_what_the_agent_runs_is_known(serve: Serve) -> None:
    """
    The shown state of an agent's configuration is pending, applied, drifted if the agent runs another
    version, or failed with its message. A repeated report writes nothing.
    """
    server, key = await made(serve)
    manager = await server.make_key("manager", scopes=["container:update-cluster", "container:get-clusters"])
    await server.send(f"{BASE}/status", agent.status(), content_type="application/x-protobuf", key=key)
    cluster = server.app.services.storage.clusters.find_by_name(CLUSTER.account, CLUSTER.region, CLUSTER.name)
    assert cluster is not None
    one = f"/v2/container/clusters/{cluster.id}"

    async def state() -> str:
        shown = await server.send(one, b"", method="GET", key=manager)
        found = json.loads(shown.body)["cluster"]
        filtered = f"/v2/container/clusters?config_state={found['config_state']}"
        listed = await server.send(filtered, b"", method="GET", key=manager)
        assert 1 == json.loads(listed.body)["pagination"]["total_count"]
        return str(found["config_state"])

    async def change(interval: str) -> str:
        given = json.dumps({"config": {"scrape_interval": interval}}).encode()
        changed = await server.send(one, given, method="PATCH", key=manager)
        return str(json.loads(changed.body)["cluster"]["config_version"])

    async def runs(version: str, failed: str = "") -> int:
        query = f"{agent.query()}&applied={version}" + (f"&failed={failed}" if failed else "")
        return (await server.send(f"{BASE}/config{query}", b"", method="GET", key=key)).status

    assert "none" == await state()
    first = await change("60s")
    assert "pending" == await state()
    assert 200 == await runs("none") and "pending" == await state()
    assert 200 == await runs(first) and "applied" == await state()
    assert 200 == await runs("0" * 16) and "drifted" == await state()
    second = await change("90s")
    assert "pending" == await state()
    assert 200 == await runs(first, "no room") and "failed" == await state()
    [unapplied] = server.app.services.single.clusters.unapplied_configs()
    assert unapplied.state == "failed"
    assert unapplied.problem == "no room"
    assert first == await change("60s") and "applied" == await state()
    assert second == await change("90s") and 200 == await runs(second)
    registry = server.app.services.operators.installation.require_registry()
    kept = registry.cluster_configs.find(cluster.id)
    assert 200 == await runs(second) and kept is registry.cluster_configs.find(cluster.id)
    assert [400, 400] == [await runs("x"), await runs(second, "x" * 201)]
