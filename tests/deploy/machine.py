"""
A Debian tree made by debootstrap, changed by commands in it, and booted with systemd as its first process.

It has its own namespaces for processes, mounts and the network (only loopback), and needs root. Trees are
stored in `.venv-debian`, because creating one takes a minute.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT
from tests.waiting import wait_until

KEPT = ROOT / ".venv-debian"
MIRROR = "http://deb.debian.org/debian"
BOOT_S = 60.0

# The container has the devices and mounts that systemd expects, and a tmpfs on /run and /tmp like a real machine.
BOOT = """
set -e
mount --make-rprivate / && mount --bind "$0" "$0" && cd "$0"
mount -t proc proc proc && mount -t sysfs sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev && mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
mknod -m 666 dev/null c 1 3 && mknod -m 666 dev/zero c 1 5 && mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8 && mknod -m 666 dev/urandom c 1 9 && mknod -m 666 dev/tty c 5 0
mount -t tmpfs -o mode=755 tmpfs run && mount -t tmpfs tmpfs tmp
ip link set lo up
pivot_root . mnt && umount -l /mnt && mount --make-rshared /
exec env -i container=tests PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system
"""
# systemd treats the control group in which it was started as the root
JOIN = 'echo $$ > "$1/cgroup.procs" && exec unshare --cgroup sh -c "$2" "$0"'


def need_root_and(*programs: str) -> None:
    """Skip the test with a reason if a machine cannot be created."""
    missing = [program for program in programs if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(programs)}; missing: {', '.join(missing) or 'root'}")


def debian(suite: str, packages: Sequence[str], place: Path) -> Path:
    """Return a fresh tree of that release with these packages."""
    need_root_and("debootstrap", "unshare")
    kept = KEPT / "-".join([suite, *packages])
    if not kept.exists():
        making = KEPT / f"making-{os.getpid()}"
        include = [f"--include={','.join(packages)}"] if packages else []
        command = ["debootstrap", "--variant=minbase", *include, suite, str(making), MIRROR]
        done = subprocess.run(command, capture_output=True, text=True)
        assert 0 == done.returncode, done.stdout[-2000:]
        making.rename(kept)
    subprocess.run(["cp", "-a", "--reflink=auto", str(kept), str(place)], check=True)
    return place


class Machine:
    """A booted Debian tree."""

    def __init__(self, first_process: int) -> None:
        self._enter = [
            "nsenter",
            "--all",
            "--target",
            str(first_process),
            "env",
            "-i",
            "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ]

    def attempt(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, "sh", "-c", f"cd /root && {command}"], capture_output=True, text=True, timeout=120
        )

    def run(self, command: str) -> str:
        """Run a shell command in it; return its standard output."""
        done = self.attempt(command)
        assert 0 == done.returncode, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def wait_for(self, command: str) -> str:
        """Repeat a command until it succeeds; return its standard output."""

        def output() -> list[str]:
            done = self.attempt(command)
            return [] if done.returncode else [done.stdout]

        (found,) = wait_until(output, command)
        return found


@contextmanager
def running(script: str, arguments: Sequence[str], *, name: str) -> Iterator[Machine]:
    """Run a script in its own namespaces. It must exec the first process there, which is called `name`."""
    need_root_and("unshare", "nsenter")
    namespaces = ["--mount", "--pid", "--uts", "--ipc", "--net", "--fork", "--kill-child"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", script, *arguments],
        stdin=quiet,
        stdout=quiet,
        stderr=subprocess.PIPE,
    )
    try:
        first = _first_process(process, name)
        try:
            yield Machine(first)
        finally:
            with suppress(ProcessLookupError):
                # kill the first process itself, because a process that changed its user does not end
                # with its parent
                os.kill(first, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def booted(tree: Path, place: Path) -> Iterator[Machine]:
    """Run systemd in a tree, in its own control group."""
    groups = place / "cgroup"
    groups.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(groups)], check=True)
    group = groups / f"tollhouse-{os.getpid()}"
    group.mkdir()
    try:
        with running(JOIN, [str(tree), str(group), BOOT], name="systemd") as machine:
            machine.wait_for("systemctl is-system-running | grep -Eq 'running|degraded'")
            yield machine
    finally:
        for inner in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            _remove(inner)
        _remove(group)
        subprocess.run(["umount", str(groups)], check=True)


def _first_process(process: subprocess.Popen[bytes], name: str) -> int:
    """Wait until the first process in the namespace has that name; return its pid outside."""

    def first() -> int:
        if process.poll() is not None:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read().decode() or f"{name} did not start")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        is_named = children and Path(f"/proc/{children[0]}/comm").read_text() == f"{name}\n"
        return int(children[0]) if is_named else 0

    return wait_until(first, f"the start of {name}")


def _remove(group: Path) -> None:
    """Remove a control group, which is possible when the last of its killed processes is gone."""

    def is_removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_until(is_removed, f"{group} is empty")
