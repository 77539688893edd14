"""The content of the Debian package, and its installation, upgrade and removal in a booted Debian."""

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
from click.testing import CliRunner

from gateway.cli import main
from tests.acceptance.conftest import ROOT
from tests.deploy.machine import Machine, booted, debian
from tests.documents import blocks
from tests.tools import program

CONFIG = "/etc/tollhouse/tollhouse.toml"
ASK = """
import time, urllib.request
end = time.monotonic() + 10
while time.monotonic() < end:
    urllib.request.urlopen("http://127.0.0.1:4318/livez", timeout=30).read()
"""
OWN = ("systemd", "systemd-sysv", "dbus", "python3", "ca-certificates", "curl")
PAGES = (
    "README",
    "docs/quick-start",
    "docs/how-numbers-are-made",
    "docs/upgrade",
    "docs/costs",
    "docs/restricted-access",
)


def build(place: Path) -> Path:
    if not Path("/etc/debian_version").exists():
        pytest.skip("packages are built on Debian with its Python: this is another system")
    program("dpkg-deb")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("packages are built with Debian's Python: /usr/bin/python3 is missing")
    command = [str(ROOT / "deploy/debian/build.sh"), str(place)]
    env = {**os.environ, "DPKG_DEB_COMPRESSOR_LEVEL": "0"}  # the fastest
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert 0 == done.returncode, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("package"))


@pytest.mark.proof
def test_somebody_answers_for_the_package(package: Path) -> None:
    """The package's maintainer is a real address."""
    command = ["dpkg-deb", "--field", str(package), "Maintainer"]
    maintainer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert re.fullmatch(r".+ <[^@\s]+@[^@\s]+>", maintainer)
    assert not re.search(r"\.(invalid|example|test)>", maintainer) or maintainer in who_committed()


def who_committed() -> str:
    command = ["git", "log", "-1", "--format=%an <%ae>"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def listed(package: Path) -> dict[str, str]:
    """Return mode and owner of everything in a package, by path."""
    command = ["dpkg-deb", "--contents", str(package)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = [line.split(None, 5) for line in lines]
    return {path.split(" -> ")[0].lstrip("."): f"{mode} {owner}" for mode, owner, *_, path in fields}


@pytest.mark.proof
def test_the_package_holds_what_runs_and_nothing_of_its_builder(package: Path) -> None:
    """
    The package has units, settings, key directories that only root can read, and the locked libraries, but
    no compiled caches.
    """
    files = listed(package)
    assert {"root/root"} == {each.split()[1] for each in files.values()}
    assert "drwx------ root/root" == files["/etc/tollhouse/keys/"] == files["/etc/tollhouse/agent-keys/"]
    probe = [f"tollhouse-agent-probe.{kind}" for kind in ("service", "timer", "path")]
    for name in ("tollhouse.service", "tollhouse.socket", "tollhouse-agent.service", *probe):
        assert f"/usr/lib/systemd/system/{name}" in files
    assert not [path for path in files if "__pycache__" in path or "direct_url" in path]
    installed = {
        match[1].lower().replace("_", "-")
        for path in files
        if (match := re.search(r"/([\w.]+)-[\w.]+\.dist-info/$", path))
    }
    locked = {
        name.lower().replace("_", "-")
        for name in re.findall(
            r"^([\w.-]+)==", (ROOT / "deploy/locks/requirements.lock").read_text(), re.MULTILINE
        )
    }
    assert {"tollhouse"} == installed - locked


@pytest.mark.proof
def test_the_package_has_completions(package: Path, tmp_path: Path) -> None:
    """
    Bash, zsh and fish find the completions of the package by themselves. Their text is what `tollhouse completion`
    prints.
    """
    subprocess.run(["dpkg-deb", "--extract", str(package), str(tmp_path)], check=True)
    places = {
        "bash": "bash-completion/completions/tollhouse",
        "zsh": "zsh/vendor-completions/_tollhouse",
        "fish": "fish/vendor_completions.d/tollhouse.fish",
    }
    for shell, place in places.items():
        printed = CliRunner().invoke(main, ["completion", shell])
        assert printed.exit_code == 0
        assert printed.stdout == (tmp_path / "usr/share" / place).read_text()
    if shutil.which("bash"):
        script = f"""
            . {tmp_path}/usr/share/{places["bash"]}
            complete -p tollhouse
        """
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert "-F _tollhouse_completion tollhouse" in done.stdout


def test_nobody_is_invented_as_maintainer(tmp_path: Path) -> None:
    """Without a commit and without DEBEMAIL, no package is built. An address that cannot receive mail is named."""
    text = (ROOT / "deploy/debian/build.sh").read_text()
    [lines] = re.findall(r"^maintainer=.*?^homepage=$.*?^fi$", text, re.MULTILINE | re.DOTALL)
    script = f'set -euo pipefail\n{lines}\necho "$maintainer|$homepage"'

    def run(**environ: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), **environ}
        return subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)

    nobody = run()
    assert nobody.returncode == 1
    assert "set DEBFULLNAME and DEBEMAIL" in nobody.stderr
    assert "can receive no mail" in run(DEBEMAIL="ann@host.example").stderr
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for origin, homepage in (
        ("https://ann:secret@code.tollhouse.io/ann/tollhouse.git", "https://code.tollhouse.io/ann/tollhouse"),
        ("git@code.tollhouse.io:ann/tollhouse.git", "https://code.tollhouse.io/ann/tollhouse"),
        ("/home/ann/tollhouse", ""),
    ):
        subprocess.run(["git", "config", "remote.origin.url", origin], cwd=tmp_path, check=True)
        known = run(DEBFULLNAME="Ann", DEBEMAIL="ann@tollhouse.io")
        assert (known.stdout, known.stderr) == (f"Ann <ann@tollhouse.io>|{homepage}\n", "")


@pytest.mark.proof
def test_lintian_finds_no_error(package: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("lintian is not installed")
    command = ["lintian", "--fail-on", "error", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert 0 == done.returncode, done.stdout


@pytest.mark.chroot
def test_equal_checkouts_give_equal_packages(package: Path, tmp_path: Path) -> None:
    assert package.read_bytes() == build(tmp_path).read_bytes()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Iterator[Machine]:
    """Boot a Debian of this machine's release, with packages of this version and the next in /root."""
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    assert release is not None
    place = tmp_path_factory.mktemp("machine")
    tree = debian(release[1], OWN, place / "tree")
    shutil.copy(package, tree / "root/first.deb")
    unpacked = place / "next"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(unpacked)], check=True)
    control = unpacked / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*", "Version: 99.0", control.read_text(), flags=re.MULTILINE))
    command = [
        "dpkg-deb",
        "--root-owner-group",
        "-Znone",
        "--build",
        str(unpacked),
        str(tree / "root/next.deb"),
    ]
    subprocess.run(command, capture_output=True, check=True)
    with booted(tree, place) as one:
        yield one
    shutil.rmtree(tree)


def tollhouse_json(machine: Machine, *words: str) -> Any:
    """Run a command without --config, which finds the service's configuration; return its JSON."""
    return json.loads(machine.run(f"tollhouse {shlex.join(words)} --json"))


def received(machine: Machine) -> int:
    return sum(topic["received"] for topic in tollhouse_json(machine, "spool", "status")["topics"])


def main_pid(machine: Machine) -> str:
    return machine.run("systemctl show -P MainPID tollhouse").strip()


def guided() -> tuple[str, str]:
    """
    Return the guide's commands that create the first key and send the first record, without sudo because
    root runs them.
    """
    text = (ROOT / "docs/install/debian.md").read_text()
    lines = re.findall(r"^    (?:sudo )?(.*tollhouse (?:keys|send).*)$", text, re.MULTILINE)
    create, send = lines
    return create, send


def follow(machine: Machine, page: str, secret: str) -> None:
    """Run the commands of a page in their order in a new folder."""
    folder = machine.run("mktemp -d").strip()
    known = {
        "TOLLHOUSE_KEY": secret,
        "TOLLHOUSE_URL": "http://127.0.0.1:4318",
        "TOLLHOUSE_AS": "ada@example.com",
    }
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in known.items())
    for block in blocks((ROOT / f"{page}.md").read_text()):
        if block.language == "sh":
            machine.run(f"cd {folder} && export {exports} && {block.text}")


@pytest.mark.chroot
def test_the_package_from_install_to_purge(machine: Machine) -> None:
    """
    The package is installed, upgraded and removed in a booted Debian. Each comment describes the step below it.
    Stored records survive all steps.
    """
    # After the installation, the service runs under its own user.
    machine.run("dpkg -i first.deb && systemctl is-active tollhouse && systemctl is-enabled tollhouse")
    assert machine.run(f"stat -c %U /proc/{main_pid(machine)}").strip() != "root"
    create, send = guided()
    [secret] = set(re.findall(r"th_[\w-]{43}", machine.run(create)))
    machine.run(send.replace("th_...", secret))
    assert 1 == received(machine)

    # The commands of the documents work unchanged with only the package.
    for page in PAGES:
        follow(machine, page, secret)
    taken = received(machine)

    # With the example upstream enabled, its key is read from the service's credentials.
    machine.run(
        "install -m 0600 /dev/null /etc/tollhouse/keys/upstream && echo a-secret > "
        "/etc/tollhouse/keys/upstream"
    )
    machine.run(f"sed -i '/^# .upstream/,$ s/^# //; s#https://cost.example.com#http://127.0.0.1:9#' {CONFIG}")
    machine.run("systemctl restart tollhouse")
    reason = next(row["reason"] for row in tollhouse_json(machine, "spool", "status")["routes"])
    assert "secret" not in str(reason)
    assert "cannot be read" not in machine.attempt("tollhouse check").stdout

    # A reload applies valid settings and refuses invalid settings.
    machine.run(f"sed -i '1i log = {{ level = \"debug\" }}' {CONFIG} && systemctl reload tollhouse")
    machine.run(f"cp {CONFIG} kept && echo 'nonsense = 1' >> {CONFIG}")
    assert 0 != machine.attempt("systemctl reload tollhouse").returncode
    machine.run(f"cp kept {CONFIG} && systemctl reload tollhouse")

    # After the upgrade, the new version runs with the changed settings.
    before = main_pid(machine)
    machine.run(f"dpkg -i next.deb && systemctl is-active tollhouse && cmp kept {CONFIG}")
    assert before != main_pid(machine)
    assert taken == received(machine)
    # the test has no upstream, so `tollhouse check` gets no answer
    assert "no answer" in machine.attempt("tollhouse check").stdout
    machine.run("tollhouse spool verify")

    # The agent on the same machine enrols with a credential of its service as well.
    enrolment = tollhouse_json(
        machine, "keys", "create", "--name", "enrol", "--scope", "ai-control-plane:enroll-device"
    )
    machine.run(f"echo {enrolment['secret']} > /etc/tollhouse/agent-keys/enrolment")
    machine.run(
        'sed -i \'s#https://tollhouse.example.com#http://127.0.0.1:4318#; s#:4318"  #:14318"#; '
        's#:4317"#:14317"#\''
        " /etc/tollhouse/agent.toml && systemctl start tollhouse-agent"
    )
    machine.wait_for("tollhouse devices list --json | grep -q enrolled")

    # The probe becomes the owner of a home, and the gateway states what it found, also after a policy was applied.
    machine.run("useradd --create-home ada && runuser -u ada -- mkdir -m 700 /home/ada/.codex")
    machine.run(
        "echo '[otel]' > /home/ada/.codex/config.toml && echo 'exporter = \"none\"' >> /home/ada/.codex/config.toml"
    )
    machine.run("chmod 600 /home/ada/.codex/config.toml && chown ada: /home/ada/.codex/config.toml")
    machine.run("mkdir /var/lib/tollhouse-policy && echo '{}' > /var/lib/tollhouse-policy/record.json")
    devices = 'tollhouse devices list --json | grep -o \'"id": *"[^"]*\' | cut -d\'"\' -f4'
    show = f"tollhouse devices show $({devices}) --json"
    machine.wait_for(f"{show} | grep -A3 '\"codex\"' | grep -q telemetry_off")
    assert "active" == machine.run("systemctl is-active tollhouse-agent-probe.timer").strip()
    assert "" == machine.run("journalctl -q -u tollhouse-agent-probe -p warning").strip()
    machine.run("systemctl stop tollhouse-agent")
    assert "inactive" == machine.attempt("systemctl is-active tollhouse-agent-probe.path").stdout.strip()
    machine.run("systemctl start tollhouse-agent && rm -r /var/lib/tollhouse-policy")

    # If the service hangs, systemd's watchdog restarts it.
    machine.run("mkdir /run/systemd/system/tollhouse.service.d")
    machine.run("printf '[Service]\\nWatchdogSec=3\\n' > /run/systemd/system/tollhouse.service.d/test.conf")
    machine.run("systemctl daemon-reload && systemctl restart tollhouse")
    hung = main_pid(machine)
    machine.run(f"kill -STOP {hung}")
    machine.wait_for(
        f"systemctl is-active tollhouse && test $(systemctl show -P MainPID tollhouse) != {hung}"
    )
    machine.run("rm -r /run/systemd/system/tollhouse.service.d && systemctl daemon-reload")
    assert taken == received(machine)

    # Files that root creates while the service is stopped belong to the service after its start.
    machine.run("systemctl stop tollhouse")
    tollhouse_json(machine, "keys", "create", "--name", "second", "--use-case", "Send AI Telemetry")
    assert "0" in machine.run("stat -c %u /var/lib/tollhouse/*").split()
    machine.run("systemctl start tollhouse")
    assert "0" not in machine.run("stat -c %u /var/lib/tollhouse/*").split()

    # With its socket unit the service restarts without refusing a request.
    machine.run(
        "systemctl stop tollhouse && systemctl enable --now tollhouse.socket && systemctl start tollhouse"
    )
    machine.run(f"python3 -c '{ASK}' & asking=$!; systemctl restart tollhouse && wait $asking")

    # After the purge, only the records remain.
    machine.run("dpkg --purge tollhouse")
    assert "inactive" == machine.attempt("systemctl is-active tollhouse").stdout.strip()
    left = machine.run(
        "find /etc /usr /var/lib -name '*tollhouse*' -not -path '/var/lib/private/*/*'"
    ).split()
    state = [
        f"/var/lib/{place}{name}" for name in ("tollhouse", "tollhouse-agent") for place in ("", "private/")
    ]
    assert sorted(state) == sorted(left)
