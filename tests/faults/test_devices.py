from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.payloads import post, request, span
from tests.acceptance.test_devices import FLEET, listed
from tests.faults.conftest import Sites
from tests.faults.scenarios import Trial

DEVICES = 30
PLANE = """
[[upstream.keys]]
name = "plane"
secret_env = "PLANE"
scopes = ["ai-control-plane:enroll-device", "ai-control-plane:heartbeat-device"]
"""


@pytest.mark.proof
@pytest.mark.fault("F26")
def test_devices_enrol_at_once_are_claimed_twice_and_revoked(trial: Trial, sites: Sites) -> None:
    """
    Each device exists once, the first claim survives a kill, a revoked key is refused at once, and
    nothing is lost.
    """
    for rng in trial.rounds(short=1, full=10):
        site = sites(rng, more=PLANE)
        fleet = site.tollhouse.key("fleet", *FLEET)
        url = site.start(PLANE="plane-secret")
        names = [f"laptop-{number}" for number in range(DEVICES)]
        claims = [(name, claim) for name in names for claim in ("mine", "mine", "theirs")]
        rng.shuffle(claims)

        def enrol(claim: tuple[str, str], fleet: str = fleet, url: str = url) -> tuple[int, str, str, Any]:
            name, fingerprint = claim
            body = {"device_id": name, "fingerprint": fingerprint, "want_key": True}
            answer = post(url, json.dumps(body).encode(), fleet, path="/v1/ai-control-plane/enroll")
            return answer.status, name, fingerprint, answer.json()

        with site.oracle.load(url, senders=2, pause_s=0.02), ThreadPoolExecutor(8) as senders:
            answers = list(senders.map(enrol, claims))
        owners: dict[str, set[str]] = {name: set() for name in names}
        for status, name, fingerprint, _ in answers:
            assert status in (200, 201, 409)
            if status != 409:
                owners[name].add(fingerprint)
        assert [] == [name for name, who in owners.items() if len(who) != 1]

        site.kill()
        site.start(PLANE="plane-secret")
        assert set(names) == set(listed(site.tollhouse))
        name = rng.choice(names)
        (owner,) = owners[name]
        assert 409 == enrol((name, "theirs" if owner == "mine" else "mine"))[0]
        keys = {n: answer["key"] for status, n, _, answer in answers if status != 409 and "key" in answer}
        with site.oracle.load(url, senders=2, pause_s=0.02):
            site.tollhouse.run("devices", "revoke", name)
            refused = post(url, request([span("chatcmpl-" + "b" * 24)]), keys[name]).status
            other = next(n for n in names if n != name)
            fresh = site.oracle.make(1)
            taken = post(url, fresh.body, keys[other]).status
        assert refused == 401
        assert taken == 200
        site.oracle.acknowledged.update(fresh.calls)
        assert "revoked" == listed(site.tollhouse)[name]["state"]
        site.close(trial)
