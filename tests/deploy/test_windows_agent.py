"""
The installer and the service of the agent for Windows, under wine. A small program takes the place of the agent.

Nothing here ran on Windows. Debian's packages for it: wixl, msitools, gcc-mingw-w64-x86-64 and wine64.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT
from tests.waiting import wait_until

WINE = "/usr/lib/wine/wine64"
SERVER = "/usr/lib/wine/wineserver64"
# It notes its start, its arguments and the end of its standard input. The settings may state an exit code.
STAND_IN = r"""
#include <stdio.h>
static void note(const char *text) { FILE *f = fopen("C:\\notes.txt", "a"); fprintf(f, "%s\n", text); fclose(f); }
int main(int count, char **words) {
    char text[4096] = "start"; size_t used = 5; int code = 0;
    for (int i = 1; i < count; i++) used += snprintf(text + used, sizeof text - used, " %s", words[i]);
    note(text);
    puts("a line of the log"); fflush(stdout);
    FILE *settings = fopen(words[3], "r");
    if (settings) { if (fscanf(settings, "exit = %d", &code)) {} fclose(settings); }
    if (code) { note("refused"); return code; }
    while (getchar() != EOF) {}
    note("end of input");
    return 0;
}
"""


class Windows:
    """A directory that wine shows to programs as drive C:."""

    def __init__(self, place: Path) -> None:
        self._env = {**os.environ, "WINEPREFIX": str(place), "WINEDEBUG": "-all"}
        self.drive = place / "drive_c"
        place.mkdir()
        self.run("wineboot", "--init")
        # end wine's processes, because its services from the first run stay locked while one of wine's own
        # waits for a device
        self._end()
        # wine ends its services when the last other program ends
        quiet = subprocess.DEVNULL
        command = [WINE, "cmd"]
        self._holder = subprocess.Popen(
            command, env=self._env, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet
        )

    def run(self, *words: str, code: int | None = 0) -> str:
        output = self.drive.parent / "output"
        # a file, because services that the program starts keep a pipe open
        with output.open("w") as file:
            done = subprocess.run([WINE, *words], env=self._env, stdout=file, stderr=file, timeout=240)
        text = output.read_text(errors="replace")
        assert code in (None, done.returncode), f"{words}: exit {done.returncode}\n{text}"
        return text

    def install(self, package: Path) -> None:
        """Repeat the installation while wine still starts its own services: no other service can start meanwhile."""
        words = (WINE, "msiexec", "/qn", "/i", f"Z:{package}".replace("/", "\\"))
        quiet = subprocess.DEVNULL
        wait_until(
            lambda: (
                subprocess.run(words, env=self._env, stdout=quiet, stderr=quiet, timeout=240).returncode == 0
            ),
            "the installation",
        )

    def close(self) -> None:
        """End the processes of this wine drive, and no others."""
        self._holder.communicate(timeout=60)
        self._end()

    def _end(self) -> None:
        subprocess.run([SERVER, "-k"], env=self._env, timeout=120)
        subprocess.run([SERVER, "-w"], env=self._env, timeout=120)

    @property
    def notes(self) -> list[str]:
        file = self.drive / "notes.txt"
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"install wixl, msitools, gcc-mingw-w64-x86-64 and wine64; missing: {', '.join(missing)}")


def installer(place: Path, version: str, account: Sequence[str] = ()) -> Path:
    need("wixl", "msibuild", "msiinfo", "x86_64-w64-mingw32-gcc")
    frozen = place / "frozen"
    (frozen / "_internal/lib").mkdir(parents=True, exist_ok=True)
    (frozen / "_internal/lib/part.txt").write_text("a part of the program")
    (place / "stand-in.c").write_text(STAND_IN)
    compiler = ["x86_64-w64-mingw32-gcc", "-o", str(frozen / "tollhouse.exe"), str(place / "stand-in.c")]
    subprocess.run(compiler, check=True)
    env = {**os.environ, "VERSION": version, **dict(zip(("ACCOUNT",), account, strict=False))}
    command = [str(ROOT / "deploy/windows/build.sh"), str(frozen), str(place)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    return Path(done.stdout.strip())


def table(package: Path, name: str) -> list[list[str]]:
    command = ["msiinfo", "export", str(package), name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split("\t") for line in lines[3:]]


def properties_of(package: Path) -> dict[str, str]:
    return {row[0]: row[1] for row in table(package, "Property")}


def test_tables_of_the_installer(tmp_path: Path) -> None:
    """
    The Windows service has an account of its own, and nobody else may write to its folder. A version has one
    product code.
    """
    package = installer(tmp_path, "1.2.3")
    [service] = table(package, "ServiceInstall")
    assert "NT SERVICE\\TollhouseAgent" in service
    [rights] = table(package, "MsiLockPermissionsEx")
    assert ["Data", "DATADIR", "CreateFolder"] == rights[:3]
    # `sc showsid TollhouseAgent` on Windows has to print the same id
    assert "O:BAG:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301bf;;;S-1-5-80-" in rights[3]
    properties = properties_of(package)
    assert "1.2.3" == properties["ProductVersion"]
    (tmp_path / "again").mkdir()
    again = installer(tmp_path / "again", "1.2.3")
    later = installer(tmp_path / "again", "1.2.4")
    codes = [properties_of(each)["ProductCode"] for each in (again, later)]
    assert properties["ProductCode"] == codes[0] != codes[1]
    assert {row[0] for row in table(package, "Upgrade")} == {properties["UpgradeCode"]}


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    need("wixl", "msibuild", "msiinfo", "x86_64-w64-mingw32-gcc", WINE)
    made = Windows(tmp_path_factory.mktemp("wine") / "prefix")
    yield made
    made.close()


@pytest.mark.clients
def test_the_service_follows_the_settings_and_stops_by_closed_input(windows: Windows, tmp_path: Path) -> None:
    """
    Installed silently, the Windows service waits for its settings, restarts when they change, does not repeat a
    start that the agent refused, and stops in order. An upgrade and a removal leave settings and records.
    """
    first, later = (installer(tmp_path, version, [""]) for version in ("1.0.0", "1.0.1"))
    windows.install(first)
    service = windows.drive / "Program Files/Tollhouse/tollhouse-service.exe"
    part = windows.drive / "Program Files/Tollhouse/agent/_internal/lib/part.txt"
    assert service.exists()
    assert "a part of the program" == part.read_text()
    assert re.search(r"STATE\s+: 4\s+RUNNING", windows.run("sc", "query", "TollhouseAgent"))
    assert not windows.notes
    place = windows.drive / "ProgramData/Tollhouse"
    settings = place / "agent.toml"
    settings.write_text("[agent]")
    wait_until(lambda: windows.notes == ["start"], "the start with the settings")
    folder = "C:\\ProgramData\\Tollhouse"
    words = f"--config {folder}\\agent.toml --data {folder}\\Agent --until-stdin-ends"
    assert f"start agent {words}\n" == (windows.drive / "notes.txt").read_text()
    wait_until(lambda: "a line of the log" in (place / "Agent/agent.log").read_text(), "the log")
    settings.write_text("exit = 2")
    wait_until(lambda: windows.notes[1:] == ["end", "start", "refused"], "the start with other settings")
    settings.write_text("exit = 0")
    wait_until(lambda: windows.notes[4:] == ["start"], "the start with corrected settings")
    windows.run("net", "stop", "TollhouseAgent")
    assert ["end"] == windows.notes[5:]
    assert re.search(r"STATE\s+: 1\s+STOPPED", windows.run("sc", "query", "TollhouseAgent"))
    windows.run("net", "start", "TollhouseAgent")
    wait_until(lambda: windows.notes[6:] == ["start"], "the start of the service")
    windows.install(later)
    wait_until(lambda: windows.notes[7:] == ["end", "start"], "the start after the upgrade")
    windows.run("msiexec", "/qn", "/x", f"Z:{later}".replace("/", "\\"))
    assert ["end"] == windows.notes[9:]
    assert not service.exists()
    assert not part.exists()
    assert settings.exists()
    assert (place / "Agent/agent.log").exists()
    windows.run("sc", "query", "TollhouseAgent", code=None)
    assert not service.parent.exists()
