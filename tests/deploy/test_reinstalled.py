"""
The scripts of the agent's packages, called by dpkg and rpm: installed, upgraded, removed, installed again.

The packages are small, and their scripts see a folder as the root of the machine, with programs that note their calls.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT

SCRIPTS = ROOT / "deploy/agent/linux"
UNITS = ("tollhouse-agent.path", "tollhouse-agent.service")
STATE = "var/lib/private/tollhouse-agent"
KEY, RECORD, SETTINGS = f"{STATE}/device.key", f"{STATE}/spool.sqlite", "etc/tollhouse/agent.toml"
SYSTEMCTL = """#!/bin/sh
word=$1
shift
for unit in "$@"; do
	case $word in
	enable) : >"{place}/enabled/$unit" ;;
	disable) rm -f "{place}/enabled/$unit" ;;
	start) : >"{place}/active/$unit" ;;
	stop) rm -f "{place}/active/$unit" ;;
	esac
done
"""
SPEC = """
Name: agent
Version: {version}
Release: 1
Summary: scripts
License: none
BuildArch: noarch
%description
scripts
%post
{post}
%preun
{preun}
%postun
{postun}
%files
"""


class Place:
    """A folder that stands for the root of a machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        for folder in ("tools", "enabled", "active", "packages", "root/var/lib", "root/run/systemd/system"):
            (path / folder).mkdir(parents=True, exist_ok=True)
        units = self.root / "usr/lib/systemd/system"
        units.mkdir(parents=True)
        for unit in UNITS:
            (units / unit).touch()
        self._tool("systemctl", SYSTEMCTL.format(place=path))
        self._tool("tollhouse", f'#!/bin/sh\necho "$*" >>"{path}/said"\n')

    def _tool(self, name: str, text: str) -> None:
        (self.path / "tools" / name).write_text(text)
        (self.path / "tools" / name).chmod(0o755)

    def script(self, name: str) -> str:
        """Return a script whose paths are in the folder."""
        text = re.sub(
            r"(?<=[\s\"=>])/(?=(?:etc|var|run|usr)/)", f"{self.root}/", (SCRIPTS / name).read_text()
        )
        begin, _, rest = text.partition("\n")
        assert begin == "#!/bin/sh"
        others = re.findall(r"(?<=[\s\"=>])/(?!dev/null)\S*", rest.replace(str(self.root), ""))
        assert [path for path in others if not path.startswith(("/etc", "/var", "/run", "/usr"))] == []
        return f'{begin}\nPATH="{self.path}/tools:/usr/bin:/bin"\n{rest}'

    def write_state(self) -> None:
        for name in (KEY, RECORD, SETTINGS):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(name)

    def state(self) -> set[str]:
        return {name for name in (KEY, RECORD, SETTINGS) if (self.root / name).exists()}

    def running(self) -> tuple[set[str], set[str]]:
        """Return the enabled and the active units."""
        enabled, active = (
            {path.name for path in (self.path / name).iterdir()} for name in ("enabled", "active")
        )
        return enabled, active

    @property
    def said(self) -> list[str]:
        """Return what `tollhouse` was called with."""
        file = self.path / "said"
        return file.read_text().splitlines() if file.exists() else []


def run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr


class Dpkg:
    """dpkg with its own list of packages."""

    can_purge = True

    def __init__(self, place: Path) -> None:
        self._admin = place / "dpkg"
        for name in ("info", "updates", "triggers"):
            (self._admin / name).mkdir(parents=True)
        for name in ("status", "available"):
            (self._admin / name).touch()
        self._place = place

    def build(self, place: Place, version: str) -> Path:
        control = place.path / version / "DEBIAN"
        control.mkdir(parents=True)
        text = f"Package: agent\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@example.com>\n"
        (control / "control").write_text(text + "Description: scripts\n")
        names = {"postinst": "postinstall.sh", "prerm": "preremove.sh", "postrm": "postremove.sh"}
        for name, script in names.items():
            (control / name).write_text(place.script(script))
            (control / name).chmod(0o755)
        package = place.path / f"packages/{version}.deb"
        run(["dpkg-deb", "-b", control.parent, package])
        return package

    def _run(self, *words: str | Path) -> None:
        forced = ("script-chrootless", "not-root", "bad-path")
        options = [*(f"--force-{word}" for word in forced), f"--admindir={self._admin}"]
        run(["dpkg", *options, f"--instdir={self._place / 'files'}", "--log=/dev/null", *words])

    def install(self, package: Path) -> None:
        (self._place / "files").mkdir(exist_ok=True)
        self._run("-i", package)

    upgrade = install

    def remove(self) -> None:
        self._run("-r", "agent")

    def purge(self) -> None:
        self._run("-P", "agent")


class Rpm:
    """rpm with its own list of packages."""

    can_purge = False

    def __init__(self, place: Path) -> None:
        self._options = ["--dbpath", str(place / "rpm")]

    def build(self, place: Place, version: str) -> Path:
        names = {"post": "postinstall.sh", "preun": "preremove.sh", "postun": "postremove.sh"}
        scripts = {name: place.script(script).replace("%", "%%") for name, script in names.items()}
        spec = place.path / f"{version}.spec"
        spec.write_text(SPEC.format(version=version, **scripts))
        run(["rpmbuild", "-bb", "--define", f"_topdir {place.path / 'build'}", spec])
        [package] = (place.path / "build/RPMS/noarch").glob(f"agent-{version}-*.rpm")
        return package

    def _run(self, *words: str | Path) -> None:
        run(["rpm", *self._options, "--nodeps", *words])

    def install(self, package: Path) -> None:
        self._run("-i", package)

    def upgrade(self, package: Path) -> None:
        self._run("-U", package)

    def remove(self) -> None:
        self._run("-e", "agent")

    def purge(self) -> None:
        raise NotImplementedError("rpm knows no purge")


@pytest.mark.parametrize(("manager", "tool"), [(Dpkg, "dpkg-deb"), (Rpm, "rpmbuild")])
def test_an_agent_that_is_installed_again_runs_with_its_state(
    tmp_path: Path, manager: type[Dpkg | Rpm], tool: str
) -> None:
    """
    An upgrade says nothing to the gateway. A removal says `left` and keeps records and settings. It keeps the key as
    well, unless the packages know no purge: then it deletes the key, and a later installation enrols again.
    """
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool}")
    place, packages = Place(tmp_path), manager(tmp_path)
    first, second = packages.build(place, "1"), packages.build(place, "2")
    every, none = (set(UNITS), set(UNITS)), (set[str](), set[str]())
    packages.install(first)
    assert every == place.running()
    place.write_state()
    whole = place.state()
    packages.upgrade(second)
    assert (every, whole, []) == (place.running(), place.state(), place.said)
    kept = whole if packages.can_purge else whole - {KEY}
    for removals in (1, 2):
        packages.remove()
        assert (none, kept, removals) == (place.running(), place.state(), len(place.said))
        assert "agent unenrol --keep-key" in place.said[-1]
        packages.install(second)
        assert (every, kept) == (place.running(), place.state())
        place.write_state()
    # a unit that the administrator disabled stays disabled
    (tmp_path / "enabled" / UNITS[0]).unlink()
    packages.upgrade(packages.build(place, "3"))
    assert {UNITS[1]} == place.running()[0]
    if packages.can_purge:
        packages.purge()
        assert (none, {RECORD}) == (place.running(), place.state())
        packages.install(second)
        assert every == place.running()
