"""
The container image and the Compose file, checked statically and run as far as possible without a container runtime.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose, PyOptions

from gateway.configuration.reader import load_config
from tests.acceptance.conftest import ROOT
from tests.deploy.machine import Machine, debian, running

CONTAINERFILE = ROOT / "deploy/container/Containerfile"
COMPOSE = ROOT / "deploy/compose"


def instructions() -> list[tuple[str, str]]:
    """Return name and arguments of each instruction, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def last(name: str) -> str:
    return next(rest for found, rest in reversed(instructions()) if found == name)


def variables() -> dict[str, str]:
    return dict(
        word.split("=", 1) for name, rest in instructions() if name == "ENV" for word in shlex.split(rest)
    )


def test_the_image_runs_unprivileged_and_installs_by_hash() -> None:
    """
    The image's user is not root, its program starts without a shell, its settings load, and its libraries are
    locked by hash.
    """
    assert "65532:65532" == last("USER")
    assert json.loads(last("ENTRYPOINT")) == ["tollhouse"]
    assert json.loads(last("CMD")) == ["serve"]
    assert ["tollhouse", "health"] == json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    config = load_config(env=variables())
    assert last("VOLUME") == str(config.data_dir)
    ports = [address.rpartition(":")[2] for address in (config.server.listen, config.server.grpc_listen)]
    assert ports == last("EXPOSE").split()
    installs = [
        step for name, rest in instructions() if name == "RUN" for step in rest.split("&&") if "/pip " in step
    ]
    assert installs
    assert [] == [step for step in installs if "--require-hashes" not in step and "--no-deps" not in step]
    (argument,) = (rest for name, rest in instructions() if name == "ARG")
    chosen = [
        argument.partition("=")[2],
        "requirements-postgres.lock",
        "requirements-lake.lock",
        "requirements-kafka.lock",
    ]
    assert "deploy/locks ./locks" in [rest for name, rest in instructions() if name == "COPY"]
    assert [] == [lock for lock in chosen if not (ROOT / "deploy/locks" / lock).exists()]


def test_compose_connects_litellm_as_its_page_says() -> None:
    """The proxy's settings equal those of its connect page, and Tollhouse's variables are known settings."""
    compose = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    page = (ROOT / "docs/connect/litellm.md").read_text()
    blocks = dict(re.findall(r"^```(yaml|dotenv)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    page_variables = blocks["dotenv"].replace("HOST", "tollhouse").replace("KEY", "${TOLLHOUSE_KEY}")
    proxy = {
        name: re.sub(r":\?[^}]*", "", value)
        for name, value in compose["services"]["litellm"]["environment"].items()
    }
    assert proxy == {"OPENAI_API_KEY": "${OPENAI_API_KEY:-}"} | dict(
        line.split("=", 1) for line in page_variables.splitlines()
    )
    settings = yaml.safe_load((COMPOSE / "litellm.yaml").read_text())
    assert yaml.safe_load(blocks["yaml"])["litellm_settings"] == settings["litellm_settings"]
    tollhouse = compose["services"]["tollhouse"]
    secret = Path(load_config(env=variables() | tollhouse["environment"]).server.api_key_file or "")
    assert [secret.name] == tollhouse["secrets"]
    assert Path("/run/secrets") == secret.parent
    assert tollhouse["read_only"] is True
    assert tollhouse["cap_drop"] == ["ALL"]
    dockerfile = (COMPOSE / tollhouse["build"]["context"] / tollhouse["build"]["dockerfile"]).resolve()
    assert CONTAINERFILE == dockerfile


def specified(text: str) -> PyCompose:
    """Parse a Compose file by the Compose specification. Raises ValueError if it is invalid."""
    options = PyOptions()
    options.apply_merge = True
    compose = options.from_yaml(text)
    compose.validate()
    return compose


@pytest.mark.parametrize("path", sorted(COMPOSE.rglob("compose.yaml")), ids=lambda path: path.parent.name)
def test_compose_files_are_as_the_specification_says(path: Path) -> None:
    """The parser accepts each file and rejects unknown fields."""
    text = path.read_text()
    services = yaml.safe_load(text)["services"]
    assert set(services) == set(specified(text).service_names())
    wrong = text.replace("image:", "imagine:").replace("build:", "building:")
    with pytest.raises(ValueError, match=r"imagine|building"):
        specified(wrong)


def test_compose_publishes_the_console_on_loopback_alone() -> None:
    """Every port is bound to loopback, and the guide for `docker run` does the same."""
    tollhouse = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]["tollhouse"]
    published = dict(each.removeprefix("127.0.0.1:").split(":") for each in tollhouse["ports"])
    assert {"4318": "4318", "4317": "4317", "4319": "4319"} == published
    operator_variables = {
        name: value for name, value in tollhouse["environment"].items() if "OPERATOR" in name
    }
    server = load_config(env=variables() | operator_variables).server
    assert server.operator_listen == "0.0.0.0:4319"
    assert server.operator_plaintext is True
    guide = (ROOT / "docs/install/container.md").read_text()
    assert operator_variables == dict(re.findall(r"-e (TOLLHOUSE_SERVER__OPERATOR_\w+)=(\S+)", guide))
    assert set(tollhouse["ports"]) == set(re.findall(r"-p (\S+)", guide))


class Image:
    """
    A Containerfile executed on Debian trees. Each FROM becomes the base system of the release that it names.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stages: dict[str, Path] = {}
        self.tree = place
        self._directory = "/"
        self._variables: dict[str, str] = {}
        for name, rest in instructions():
            step = getattr(self, f"_{name.lower()}", None)
            if step is not None:
                step(rest)

    def _from(self, rest: str) -> None:
        image, _, stage = rest.partition(" AS ")
        suite = re.fullmatch(r"docker\.io/library/debian:(\w+)-slim(?:@sha256:[0-9a-f]{64})?", image)
        assert suite is not None, image
        self.tree = debian(suite[1], (), self._place / f"tree-{len(self._stages)}")
        self._stages[stage or "last"] = self.tree
        shutil.copy("/etc/resolv.conf", self.tree / "etc/resolv.conf")
        self._directory, self._variables = "/", {}

    def _workdir(self, rest: str) -> None:
        self._directory = rest
        self._inside(rest).mkdir(parents=True, exist_ok=True)

    def _arg(self, rest: str) -> None:
        self._env(rest)

    def _env(self, rest: str) -> None:
        self._variables |= dict(word.split("=", 1) for word in shlex.split(rest))

    def _copy(self, rest: str) -> None:
        *sources, target = shlex.split(rest)
        origin = ROOT
        if sources[0].startswith("--from="):
            origin = self._stages[sources.pop(0).removeprefix("--from=")]
        for source in sources:
            found = origin / source.lstrip("/")
            place = self._inside(target) / (found.name if target.endswith("/") else "")
            if found.is_dir():
                shutil.copytree(found, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(found, place)

    def _run(self, rest: str) -> None:
        # The machine's pip settings apply inside the container as well.
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        if certificates := pip.get("PIP_CERT"):
            place = self._inside(certificates)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(certificates, place)
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            **pip,
            **self._variables,
        }
        script = f"cd {self._directory} && {rest}"
        command = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount -t proc proc "$0/proc" && exec chroot "$0" sh -c "$1"',
        ]
        done = subprocess.run(
            [*command, str(self.tree), script], capture_output=True, text=True, env=env, timeout=600
        )
        assert 0 == done.returncode, f"{rest}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

    def _inside(self, path: str) -> Path:
        return self.tree / os.path.normpath(os.path.join(self._directory, path)).lstrip("/")  # noqa: PTH118


# Like a container runtime: a read-only root, a volume with the image's files, no capabilities, the image's user.
START = """
set -e
mount --make-rprivate / && mount --bind "$0" "$0" && cd "$0"
mount -t proc proc proc && mount -t tmpfs tmpfs tmp && mount --bind "$1" "$0$2"
mount --bind /dev dev
ip link set lo up
pivot_root . mnt && umount -l /mnt && mount -o remount,ro,bind /
shift 2
exec env -i PATH=/usr/local/bin:/usr/bin:/bin "$@"
"""
UNPRIVILEGED = "setpriv --reuid=65532 --regid=65532 --clear-groups --bounding-set=-all --no-new-privs"


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Machine]:
    image = Image(tmp_path)
    volume = tmp_path / "volume"
    subprocess.run(["cp", "-a", str(image.tree) + last("VOLUME"), str(volume)], check=True)
    assignments = [f"{name}={value}" for name, value in variables().items()]
    command = [*assignments, *UNPRIVILEGED.split(), *json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    with running(
        START, [str(image.tree), str(volume), last("VOLUME"), *command], name="tollhouse"
    ) as machine:
        yield machine
    for tree in tmp_path.iterdir():
        shutil.rmtree(tree)


@pytest.mark.chroot
def test_image_starts_stores_a_record_and_is_healthy(container: Machine) -> None:
    """
    Built and started like a container, the image is healthy, stores a record, and can write only in its volume.
    """
    env = " ".join(f"{name}={value}" for name, value in variables().items())
    command = f"{env} {UNPRIVILEGED}"
    health = " ".join(json.loads(last("HEALTHCHECK").partition("CMD ")[2]))
    assert "alive\n" == container.wait_for(f"{command} {health}")
    made: dict[str, Any] = json.loads(
        container.run(f"{command} tollhouse keys create --name one --use-case 'Send AI Telemetry' --json")
    )
    container.run(
        f"TOLLHOUSE_KEY={made['secret']} tollhouse send --example litellm --to http://127.0.0.1:4318"
    )
    container.run(f"{command} tollhouse spool verify")
    assert "Read-only file system" in container.attempt("touch /opt/tollhouse/x").stderr
    container.run(f"test $(stat -c %u {last('VOLUME')}/spool.sqlite) = 65532")
