"""The self-contained agent, and its packages in trees without Python. `make test-agent-package` builds them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.agent.link import STATES_FILE
from tests.acceptance.conftest import ROOT, Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.acceptance.test_devices import FLEET
from tests.deploy.machine import booted, debian, need_root_and
from tests.waiting import wait_until

BUILT = ROOT / ".venv-agent"
NO_PYTHON = ("systemd", "systemd-sysv", "dbus", "ca-certificates", "curl")
SERVICE = "tollhouse-agent.service"
SETTINGS = """
data_dir = "{data}"
[server]
listen = "127.0.0.1:{port}"
grpc_listen = ""
[spool]
hold = "0s"
[agent]
gateway = "{gateway}"
enrolment_key_file = "/etc/tollhouse/agent-keys/enrolment"
"""


def test_the_program_has_the_agent_and_nothing_else() -> None:
    """The entry script from which the self-contained agent is built runs here as well."""
    entry = [sys.executable, str(ROOT / "deploy/agent/entry.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*entry, "--help"], env=env, capture_output=True, text=True, check=True)
    commands = done.stdout.partition("Commands:")[2]
    assert re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE) == ["agent", "version"]
    done = subprocess.run(
        [*entry, "agent", "policy", "--help"], env=env, capture_output=True, text=True, check=True
    )
    assert "verify" in done.stdout


CERTIFICATES = """
import ssl, sys
elsewhere = ("SSL_CERT_FILE", "/none", "SSL_CERT_DIR", "/none")
ssl._ssl.get_default_verify_paths = lambda: elsewhere
import entry
entry.CERTIFICATES = (sys.argv[1],)
entry.find_certificates()
print(ssl.get_default_verify_paths().cafile)
"""


def test_certificates_of_this_system_are_found(tmp_path: Path) -> None:
    """
    OpenSSL of another system looks for certificates in other places, so the agent sets a variable. A variable that
    the administrator set stays.
    """
    kept = tmp_path / "certificates.pem"
    kept.touch()
    named = {"SSL_CERT_FILE": str(tmp_path / "missing")}
    for environ, found in (({}, str(kept)), (named, "None")):
        done = subprocess.run(
            [sys.executable, "-c", CERTIFICATES, str(kept)],
            env={"PYTHONPATH": str(ROOT / "deploy/agent"), **environ},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == found


@pytest.mark.parametrize(
    "script", sorted((ROOT / "deploy/agent/linux").glob("*.sh")), ids=lambda path: path.name
)
def test_scripts_of_the_packages(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_everything_that_the_packages_name_exists() -> None:
    text = (ROOT / "deploy/agent/linux/nfpm.yaml").read_text()
    named = re.findall(r"(?:src|postinstall|preremove|postremove): ((?:deploy|LICENSE)\S*)", text)
    assert len(named) == 4
    assert all((ROOT / path).exists() for path in named)


# -- the built packages ---------------------------------------------------------------------------------------


def build(place: Path, version: str) -> dict[str, Path]:
    """Return the packages of that version by their ending, from the folder that `make agent-frozen` made."""
    if not (BUILT / "tollhouse-agent/tollhouse").exists() or not (BUILT / "bin/nfpm").exists():
        pytest.skip("nothing is built: `make test-agent-package` builds it")
    command = [
        str(ROOT / "deploy/agent/package.sh"),
        str(BUILT / "bin/nfpm"),
        str(BUILT / "tollhouse-agent"),
        str(place),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "VERSION": version})
    assert 0 == done.returncode, done.stderr
    return {Path(path).suffix: Path(path) for path in done.stdout.split()}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    """Return this version and the next one."""
    place = tmp_path_factory.mktemp("packages")
    return [build(place, "1.0.0"), build(place, "1.1.0")]


def release() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    if found is None:
        pytest.skip("the trees are of this machine's release of Debian, which it does not name")
    return found[1]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    made = debian(release(), NO_PYTHON, tmp_path / "tree")
    assert not list(made.glob("usr/bin/python3*"))
    yield made
    shutil.rmtree(made)


@pytest.mark.chroot
def test_equal_folders_give_equal_packages(packages: list[dict[str, Path]], tmp_path: Path) -> None:
    again = build(tmp_path, "1.0.0")
    assert {ending: path.read_bytes() for ending, path in again.items()} == {
        ending: path.read_bytes() for ending, path in packages[0].items()
    }


@pytest.mark.chroot
def test_the_rpm_runs_without_python(
    packages: list[dict[str, Path]], tree: Path, installations: Any, tmp_path: Path
) -> None:
    """
    The packaged agent enrols, accepts a call, keeps the next call over a kill without the gateway, forwards it, and
    is removed.
    """
    need_root_and("rpm", "chroot")
    rpm = ["rpm", "--root", str(tree), "--nodeps"]
    signed = subprocess.run(["rpm", "-K", str(packages[0][".rpm"])], capture_output=True, text=True)
    assert "digests OK" in signed.stdout
    subprocess.run([*rpm, "-i", str(packages[0][".rpm"])], check=True)
    assert (tree / "etc/systemd/system/multi-user.target.wants" / SERVICE).is_symlink()
    chroot = [str(shutil.which("chroot")), str(tree)]
    grpc = "/usr/bin/tollhouse agent --data /tmp/a --gateway http://127.0.0.1:9 --grpc-listen 127.0.0.1:0"
    refused = subprocess.run(
        [*chroot, *grpc.split()], env={"PATH": "/usr/bin"}, capture_output=True, text=True
    )
    assert (2, True) == (refused.returncode, "has no gRPC" in refused.stderr)
    gateway: Tollhouse = installations("gateway")
    (tree / "etc/tollhouse/agent-keys/enrolment").write_text(gateway.key("enrolment", *FLEET))
    gateway.start()
    data = tree / "var/lib/agent"

    def start() -> tuple[subprocess.Popen[str], str]:
        settings = SETTINGS.format(data="/var/lib/agent", gateway=gateway.url, port=0)
        (tree / "etc/tollhouse/agent.toml").write_text(settings)
        process = subprocess.Popen(
            [*chroot, *["/usr/bin/tollhouse", "agent", "--config", "/etc/tollhouse/agent.toml"]],
            env={"PATH": "/usr/bin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        return process, process.stdout.readline().removeprefix("listening on ").strip()

    process, url = start()
    try:
        wait_until((data / "device.key").exists, "the device's own key")
        assert 200 == post(url, request([span("chatcmpl-" + "a" * 24)]), "").status
        wait_until(lambda: len(gateway.records()) == 1, "the first call")
        gateway.stop()
        assert 200 == post(url, request([span("chatcmpl-" + "b" * 24)]), "").status
        process.kill()
        process.communicate()
        subprocess.run([*rpm, "-U", str(packages[1][".rpm"])], check=True)
        gateway.start()
        process, _ = start()
        wait_until(lambda: len(gateway.records()) == 2, "the call that was on disk")
        status = Path(f"/proc/{process.pid}/status").read_text()
        print("agent from the package:", *re.findall(r"^(VmRSS.*)", status, re.MULTILINE))
    finally:
        process.terminate()
        process.communicate()
    assert 0 == process.returncode
    subprocess.run([*rpm, "-e", "tollhouse-agent"], check=True)
    assert not (tree / "usr/lib/tollhouse-agent").exists()
    assert not (tree / "etc/systemd/system/multi-user.target.wants" / SERVICE).is_symlink()
    assert (data / "spool.sqlite").exists()


@pytest.mark.chroot
def test_the_debian_package_in_a_booted_debian(
    packages: list[dict[str, Path]], tree: Path, tmp_path: Path
) -> None:
    """
    The packaged service starts when its settings arrive. An upgrade keeps its backlog, and a purge leaves the
    records.
    """
    for name, package in zip(("first", "next"), packages, strict=True):
        shutil.copy(package[".deb"], tree / f"root/{name}.deb")
    socket = "/var/lib/private/tollhouse-agent/operator.sock"
    with booted(tree, tmp_path) as machine:
        machine.run("dpkg -i first.deb")
        assert "enabled\nenabled\n" == machine.run(f"systemctl is-enabled {SERVICE} tollhouse-agent.path")
        assert 3 == machine.attempt(f"systemctl is-active {SERVICE}").returncode
        settings = SETTINGS.format(data="/var/lib/tollhouse-agent", gateway="http://127.0.0.1:9", port=4318)
        settings = settings.replace("/etc/tollhouse/agent-keys/", f"/run/credentials/{SERVICE}/keys_")
        machine.run("echo made-up > /etc/tollhouse/agent-keys/enrolment")
        machine.run(f"cat > /etc/tollhouse/agent.toml <<'END'\n{settings}\nEND")
        machine.wait_for(f"systemctl is-active {SERVICE}")
        (tree / "root/call").write_bytes(request([span("chatcmpl-" + "c" * 24)]))
        machine.run(
            "curl -fsS -H 'Content-Type: application/json' --data-binary @call http://127.0.0.1:4318/v1/traces"
        )
        machine.run("systemctl is-active tollhouse-agent-probe.timer")
        machine.wait_for(f"grep -q looked_at /var/lib/private/tollhouse-agent/{STATES_FILE}")
        before = machine.run(f"systemctl show -P MainPID {SERVICE}")
        machine.run("dpkg -i next.deb")
        machine.wait_for(f"systemctl is-active {SERVICE}")
        assert before != machine.run(f"systemctl show -P MainPID {SERVICE}")
        status = json.loads(
            machine.run(
                f"curl -fsS --unix-socket {socket} -H 'X-Tollhouse-As: test' http://tollhouse/console/api/status"
            )
        )
        assert [1] == [row["queued"] for row in status["routes"] if row["route"] == "upstream/ai-telemetry"]
        said = machine.run("dpkg --purge tollhouse-agent")
        assert "records in /var/lib/private/tollhouse-agent were kept" in said
        left = machine.run(
            "ls -d /usr/lib/tollhouse-agent /etc/tollhouse /usr/bin/tollhouse 2>/dev/null; true"
        )
        assert not left
        assert 4 == machine.attempt(f"systemctl status {SERVICE}").returncode
