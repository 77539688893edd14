"""Machines that enrol again, copied disks and shared hardware, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.machine_state import COPIED, REPLACED
from gateway.devices.states import SAME_HARDWARE
from gateway.operations.money.insights import make_insight_updater
from spool.devices.device import Device
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.receivers import test_enrolment_tokens as tokens
from tests.integration.receivers.test_enrolment_tokens import BEAT, config, enrol, error, said
from tests.integration.test_two_gateways import shared_config
from tests.rounds import part
from tests.spool.kept import audit_rows
from tests.spool.postgres_cluster import Schema
from tests.waiting import limited

MACHINE = "ab" * 32
_numbers = count()


async def make(server: Serving, **fields: Any) -> str:
    """Create a token with a name of its own, as two tokens of one name and serial number are refused."""
    return await tokens.make(server, name=f"jamf {next(_numbers)}", **fields)


def device(server: Serving, id: str) -> Device:
    found = server.app.services.single.devices.table.find(id)
    assert found is not None
    return found


def state(server: Serving, id: str) -> str:
    """Return the stored state of a device, or the word of an earlier or a copied one."""
    word = server.app.services.single.devices.machine_state(device(server, id)).word
    return word if word in (REPLACED, COPIED) else device(server, id).state


async def beat(server: Serving, key: str, id: str = "laptop-1", **body: Any) -> Any:
    answer = await server.send(BEAT, json.dumps({"device_id": id, **body}).encode(), key=key)
    assert 200 == answer.status, answer.body
    return json.loads(answer.body)


async def actions(server: Serving) -> list[tuple[str, str]]:
    registry = server.app.services.storage.registry
    assert registry is not None
    return [
        (row.action, row.target) for row in await audit_rows(registry) if row.action.startswith("device.")
    ]


async def found(server: Serving) -> list[str]:
    """Return the titles of the current insights about copies, after a new inspection."""
    operators = server.app.services.operators
    await make_insight_updater(operators).find_and_store_insights()
    rows = await operators.installation.require_registry().insights.detector_insights()
    return [row.title for row in rows if row.present and ("copied" in row.title or "hardware" in row.title)]


@pytest.mark.proves("A laptop takes over another by claiming its serial number or hardware id")
async def test_a_machine_that_was_installed_again(serving: Serving) -> None:
    """
    If a machine was installed again, a token for its serial number lets the new device replace the earlier one,
    whose key ends. A repeat after a crash between the two changes makes up for the second one.
    """
    first = await make(serving, serial="C02A")
    key = said(await enrol(serving, first, "laptop-1", hardware_id=MACHINE))["key"]
    again = await make(serving, serial="c02a")
    assert "key" in said(await enrol(serving, again, "laptop-2", hardware_id=MACHINE, serial="C02A"))
    assert [REPLACED, "enrolled"] == [state(serving, f"laptop-{n}") for n in (1, 2)]
    assert "laptop-2" == device(serving, "laptop-1").replaced_by
    lifecycle = serving.app.services.single.devices
    assert {"replaces": ["laptop-1"], "same_hardware": []} == lifecycle.related_device_ids(
        device(serving, "laptop-2")
    )
    refused = await serving.send(BEAT, b'{"device_id": "laptop-1"}', key=key)
    assert (401, "dead_device_key") == error(refused)
    assert [] == await found(serving)
    earlier = device(serving, "laptop-1")
    lifecycle.table.change_and_write_soon(
        "laptop-1", lambda known: replace(earlier, state="enrolled", replaced_by="")
    )
    assert "key" in said(await enrol(serving, again, "laptop-2", hardware_id=MACHINE))
    assert REPLACED == state(serving, "laptop-1")
    assert ("device.replace", "laptop-1") in await actions(serving)


@pytest.mark.proves("A laptop takes over another by claiming its serial number or hardware id")
@pytest.mark.parametrize("serial", ["", "C02B"])
async def test_a_claimed_hardware_id_ends_nothing(serving: Serving, serial: str) -> None:
    """
    A hardware id is no secret. Without a token for the earlier machine's serial number, the new device waits for an
    operator. If both are enrolled, there is one finding.
    """
    key = said(await enrol(serving, await make(serving, serial="C02A"), "laptop-1", hardware_id=MACHINE))[
        "key"
    ]
    token = await make(serving, serial=serial)
    answer = said(await enrol(serving, token, "laptop-2", hardware_id=MACHINE))
    assert ("pending", False) == (answer["device"]["state"], "key" in answer)
    assert SAME_HARDWARE == device(serving, "laptop-2").cause
    assert "enrolled" == state(serving, "laptop-1")
    await beat(serving, key, "laptop-1")
    lifecycle = serving.app.services.single.devices
    assert ["laptop-1"] == lifecycle.related_device_ids(device(serving, "laptop-2"))["same_hardware"]
    assert [] == await found(serving)
    await lifecycle.approve_device("laptop-2", ACTOR)
    assert "" == device(serving, "laptop-2").cause
    assert "key" in said(await enrol(serving, token, "laptop-2", hardware_id=MACHINE))
    assert ["2 devices report the same hardware"] == await found(serving)


async def test_made_up_devices_hold_no_machine_up(serving: Serving) -> None:
    """
    Made-up devices that claim a machine's hardware id and are pending, before or after the machine enrolled, cast
    no doubt on the machine's token.
    """
    assert 200 == (await enrol(serving, await make(serving), "first", hardware_id=MACHINE)).status
    await enrol(serving, await make(serving), "made-up-1", hardware_id=MACHINE)
    await serving.app.services.single.devices.revoke_device("first", ACTOR)
    key = await enrol(serving, await make(serving, serial="C02A"), "laptop-1", hardware_id=MACHINE)
    assert "enrolled" == said(key)["device"]["state"]
    await enrol(serving, await make(serving), "made-up-2", hardware_id=MACHINE)
    assert ["pending"] * 2 == [state(serving, f"made-up-{n}") for n in (1, 2)]
    answer = said(await enrol(serving, await make(serving, serial="C02A"), "laptop-2", hardware_id=MACHINE))
    assert ("enrolled", True) == (answer["device"]["state"], "key" in answer)
    assert [REPLACED, "enrolled"] == [state(serving, f"laptop-{n}") for n in (1, 2)]


async def test_the_serial_number_that_the_earlier_device_reported(serving: Serving) -> None:
    """A device that enrolled under a shared key states its own serial number. A token may then name this number."""
    fleet = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT, INGEST))
    key = said(await enrol(serving, fleet, "laptop-1"))["key"]
    await beat(serving, key, serial="C02A", hardware_id=MACHINE)
    token = await make(serving, serial="C02A")
    assert 200 == (await enrol(serving, token, "laptop-2", hardware_id=MACHINE)).status
    assert [REPLACED, "enrolled"] == [state(serving, f"laptop-{n}") for n in (1, 2)]


@pytest.mark.parametrize("hardware_id", part(["", "0", "AB" * 32, 5, None, ["x"]], every=2))
async def test_what_is_no_hardware_id(serving: Serving, hardware_id: object) -> None:
    for n in (1, 2):
        answer = await enrol(serving, await make(serving), f"laptop-{n}", hardware_id=hardware_id)
        assert (200, "enrolled") == (answer.status, said(answer)["device"]["state"])


@pytest.mark.proves("The disk of a laptop is copied")
async def test_a_copied_disk(serve: Serve) -> None:
    """
    A copied disk is noticed: two machines have one key and one word, and one of them returns an older word. Both
    stay accepted, with a state, an audit row and a finding, until an operator approves or resets the device.
    """
    server = await serve(config=config())
    key = said(await enrol(server, await make(server), "laptop-1"))["key"]
    plain = await beat(server, key)
    assert {"device"} == plain.keys(), "an agent without words gets none"
    word = (await beat(server, key, seq=1))["next"]
    copied = word
    for n in (2, 3):
        word = (await beat(server, key, seq=n, next=word))["next"]
    assert "next" not in await beat(server, key, seq=2, next=copied)
    assert COPIED == state(server, "laptop-1")
    word = (await beat(server, key, seq=4, next=word))["next"]
    assert ["The device laptop-1 seems to be copied"] == await found(server)
    await beat(server, key, seq=3, next=copied)
    assert 1 == (await actions(server)).count(("device.copied", "laptop-1"))
    lifecycle = server.app.services.single.devices
    await lifecycle.approve_device("laptop-1", ACTOR)
    assert "enrolled" == state(server, "laptop-1")
    word = (await beat(server, key, seq=5, next=word))["next"]
    assert [] == await found(server)
    await beat(server, key, seq=6, next="1.x")
    assert COPIED == state(server, "laptop-1")
    await lifecycle.reset_device("laptop-1", ACTOR)
    assert ("enrolled", "") == (state(server, "laptop-1"), device(server, "laptop-1").words)


async def test_another_machine_does_not_rotate_the_words(serving: Serving) -> None:
    """
    Under a shared key, only a heartbeat with the device's fingerprint changes the word of the device. So another
    machine cannot change it.
    """
    fleet = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    await enrol(serving, fleet, "laptop-1", want_key=False)
    word = (await beat(serving, fleet, seq=1, fingerprint="of laptop-1"))["next"]
    await beat(serving, fleet, seq=2, fingerprint="of laptop-1", next=word)
    assert "next" not in await beat(serving, fleet, seq=9, next="1.x")
    assert "enrolled" == state(serving, "laptop-1")


@pytest.mark.parametrize(
    "body",
    part(
        [{"seq": "x"}, {"seq": -1}, {"seq": 2**70}, {"next": 5}, {"next": "x" * 999}, {"seq": True}], every=2
    ),
)
async def test_wrong_words_are_no_fault(serving: Serving, body: dict[str, Any]) -> None:
    key = said(await enrol(serving, await make(serving), "laptop-1"))["key"]
    await beat(serving, key, **body)
    assert "enrolled" == state(serving, "laptop-1")


async def test_key_storage_is_shown_as_a_known_word(serving: Serving) -> None:
    """The place where an agent keeps its key is shown as one of the known words. Other words are left out."""
    key = said(await enrol(serving, await make(serving), "laptop-1"))["key"]
    for sent, kept in (("tpm", b"tpm"), ("moon", b"tpm"), ("file", b"file")):
        await beat(serving, key, key_storage=sent)
        assert b'"key_storage":"' + kept in device(serving, "laptop-1").heartbeat


@pytest.mark.proof
async def test_words_at_two_gateways(new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path) -> None:
    """
    A device that alternates between two gateways, with lost answers, is no copy, although each gateway learns the
    words of the other only within seconds. A copy is noticed by both.
    """
    schema = new_schema()
    shared = shared_config(schema.dsn, schema.name, tmp_path)
    pair = [await serve(config=shared, key_name=name) for name in ("one", "other")]
    key = said(await enrol(pair[0], await make(pair[0]), "laptop-1"))["key"]
    async with limited():
        while pair[1].app.services.single.devices.table.find("laptop-1") is None:
            await pair[1].app.services.single.devices.table.read_changes_of_other_processes(None)
    word, copied = "", ""
    for n in range(1, 13):
        answer = await beat(pair[n % 2], key, seq=n, next=word)
        word = word if n % 4 == 0 else answer["next"]  # every fourth answer of the gateway is lost
        copied = word if n == 6 else copied
    for server in pair:
        await server.app.services.single.devices.table.read_changes_of_other_processes(None)
        assert "enrolled" == state(server, "laptop-1")
    await beat(pair[0], key, seq=7, next=copied)
    await pair[1].app.services.single.devices.table.read_changes_of_other_processes(None)
    assert [COPIED] * 2 == [state(server, "laptop-1") for server in pair]
