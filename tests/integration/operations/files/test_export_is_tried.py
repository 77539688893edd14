"""
The dry apply at the end of an export: it finds the objects that an installation without objects would refuse, and
no others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config
from gateway.operations.files.kinds import file_kinds
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.registry.registry import Registry
from spool.registry.roles import NewRole, RoleFilter, RoleLimits
from spool.registry.views import NewView
from tests.integration.conftest import ACTOR
from tests.integration.operations.files.objects import SECRETS, files_of, generated
from tests.integration.operations.files.server import NEW_SECRET, Api, api
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema

ADA = "ada@example.com"
LOST = "lost_dimension"  # a dimension of the totals that an earlier version had


async def plant_view(registry: Registry, name: str, dimension: str) -> None:
    view = NewView(name=name, filter={dimension: ("x",)}, principal_dimension="team")
    await registry.views.create(view, known_dimensions=["team", dimension], max_rows=1000, actor=ACTOR)


async def plant_role(registry: Registry, name: str, dimension: str) -> None:
    role = NewRole(
        name=name, data_access="limited", filters=(RoleFilter(dimension=dimension, values=("x",)),)
    )
    await registry.roles.create(role, known_dimensions=[dimension], limits=RoleLimits(), actor=ACTOR)


async def plant_broken_objects(registry: Registry, dice: random.Random) -> list[str]:
    """Store views and roles that nobody could store now. Return those that an apply refuses."""
    refused = []
    for number in range(dice.randrange(4)):
        dimension = dice.choice([LOST, "User:Defined:Lost", "tag:lost"])
        noun, plant = dice.choice([("view", plant_view), ("role", plant_role)])
        await plant(registry, f"planted {number}", dimension)
        if dimension == LOST:
            refused.append(f"{noun} planted {number}")
    return refused


def registry_of(server: Api) -> Registry:
    return server.serving.app.services.operators.installation.require_registry()


async def try_export(server: Api) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the files of an export, and the problems of the dry apply at its end."""
    files = await server.files()
    status, answer = await server.ask("POST", "/apply", {"files": files, "dry_run": True, "on_empty": True})
    assert 200 == status, answer
    assert [] == answer["apply"]["conflicts"]
    problems: list[dict[str, Any]] = answer["apply"]["problems"]
    return files, problems


async def applied(to: Api, files: dict[str, str]) -> Any:
    planned = await to.apply(files, dry_run=True)
    secrets = {path: file_kinds()[path.partition("/")[0]].new_secret() for path in planned["new_secrets"]}
    return await to.apply(files, secrets={**SECRETS, **NEW_SECRET, **secrets})


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(1, 100))]
)
async def test_the_dry_apply_says_what_an_empty_installation_says(tmp_path: Path, seed: int) -> None:
    """The problems are those of a dry apply to a real installation without objects, and nothing is changed."""
    dice = random.Random(seed)
    made = generated(dice)
    if dice.random() < 0.5:
        made["scheduled-reports"] = [{**one, "people": []} for one in made["scheduled-reports"]]
    async with api(tmp_path / "one") as one, api(tmp_path / "other") as other:
        assert "applied" in await applied(one, files_of(made))
        refused = await plant_broken_objects(registry_of(one), dice)
        # accounts are no settings, so a report for a person cannot move before the account of the person
        await registry_of(other).operators.remove(ADA, actor=ACTOR)
        refused += [
            f"scheduled report {report['name']}"
            for report in made["scheduled-reports"]
            if report.get("people")
        ]
        files, problems = await try_export(one)
        assert sorted(refused) == sorted(each["object"] for each in problems)
        assert all(LOST in each["message"] or "no account" in each["message"] for each in problems)
        assert files == await one.files()
        assert problems == (await other.apply(files, dry_run=True))["problems"]
        if not refused:
            assert "applied" in await applied(other, files)
            assert files == await other.files()


@pytest.mark.proof
async def test_an_export_of_postgresql_is_tried(tmp_path: Path, new_schema: Callable[[], Schema]) -> None:
    schema = new_schema()
    async with api(tmp_path, shared_config(schema.dsn, schema.name, tmp_path)) as one:
        assert "applied" in await applied(one, files_of())
        _, before = await try_export(one)
        await plant_view(registry_of(one), "planted", LOST)
        _, problems = await try_export(one)
        [problem] = [each for each in problems if each not in before]
        assert ("views.yaml", "view planted") == (problem["file"], problem["object"])


@pytest.mark.parametrize(
    "channel",
    [
        {"type": "slack", "secret": "https://hooks.slack.com/services/T0/B0/x"},
        {
            "type": "email",
            "server": "smtp.example.com:465",
            "sender": "t@example.com",
            "to": ["ada@example.com"],
        },
        {"type": "webhook", "url": "https://hooks.example.com/a", "secret": SECRETS["hook"]},
    ],
    ids=["its address is the secret", "no secret", "a signing secret"],
)
async def test_a_channel_is_tried_with_its_own_secret(tmp_path: Path, channel: dict[str, str]) -> None:
    async with api(tmp_path) as one:
        status, made = await one.ask("POST", "/notification-channels", {"name": "team", **channel})
        assert 201 == status, made
        assert [] == (await try_export(one))[1]


async def test_a_try_is_never_stored(tmp_path: Path) -> None:
    """An apply to an installation without objects is only possible as a dry run."""
    async with api(tmp_path) as one:
        refused = await one.apply(files_of({}), on_empty=True)
        assert refused.startswith("on_empty needs dry_run: true")


def test_an_export_that_no_installation_takes_exits_with_2(tmp_path: Path) -> None:
    """The files are written, and each refused object is named with the reason."""
    store, directory = tmp_path / "store", tmp_path / "exported"
    store.mkdir()
    words = ["export", "config", str(directory), "--data", str(store)]
    assert 0 == CliRunner().invoke(main, words).exit_code

    async def plant() -> None:
        async with open_storage(Config(data_dir=store), clock=SystemClock()) as storage:
            assert storage.registry is not None
            await plant_view(storage.registry, "planted", LOST)
            await plant_view(storage.registry, "broken", "tag:lost")

    asyncio.run(plant())
    result = CliRunner().invoke(main, words)
    assert 2 == result.exit_code, result.output
    assert "view broken is broken: " in result.stderr
    assert f"another installation would refuse {directory}:" in result.stderr
    assert "view planted: views.yaml:" in result.stderr
    assert f"unknown dimension '{LOST}'" in result.stderr
    assert {"tollhouse.yaml", "views.yaml"} == {path.name for path in directory.iterdir()}
