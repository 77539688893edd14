"""Interpreters and installers, and commands that run outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MINUTE_S = 60


def run(*command: str | Path, directory: Path, **environ: Path | str) -> str:
    """Run a command that must succeed with `environ` added to the environment; return its standard output."""
    # run outside the checkout, so that Python imports the installed packages
    env = {**os.environ, **{name: str(value) for name, value in environ.items()}}
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=8 * MINUTE_S
    )
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def candidates(version: str) -> Iterator[Path]:
    """Yield possible interpreters of that version: this one, those on the PATH, those of pyenv."""
    yield Path(sys.executable)
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))


def interpreter(version: str) -> Path | None:
    """
    Return an interpreter that starts and has that version, or None, because pyenv puts broken commands
    on the PATH.
    """
    question = "import sys; print('{}.{}'.format(*sys.version_info))"
    for candidate in candidates(version):
        answer = subprocess.run([candidate, "-c", question], capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


@dataclass(frozen=True)
class Installers:
    """uv and pipx. uv reuses its downloads in further environments."""

    bin: Path
    cache: Path

    def uv(self, *words: str | Path, directory: Path) -> None:
        run(self.bin / "uv", *words, directory=directory, UV_CACHE_DIR=self.cache)

    def environment(self, python: Path, directory: Path) -> Path:
        """Create an environment below the directory; return the folder of its commands."""
        self.uv("venv", "--quiet", "--python", python, directory / "venv", directory=directory)
        return directory / "venv/bin"


def install_installers(directory: Path) -> Installers:
    directory.mkdir(exist_ok=True)
    run(sys.executable, "-m", "venv", "--without-pip", directory / "venv", directory=directory)
    python = ("--python", directory / "venv/bin/python")
    pip = (sys.executable, "-m", "pip", *python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-compile", "uv", "pipx", directory=directory)
    return Installers(directory / "venv/bin", directory / "cache")
