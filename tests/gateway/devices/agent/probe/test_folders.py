"""Homes of hostile users: the probe reads no file that the owner cannot read, follows no link, and never hangs."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway.devices.agent.probe import folders
from gateway.devices.agent.probe.folders import MOST_BYTES, GuardedFolder, UnreadableFile
from gateway.devices.agent.probe.look import UserHome
from gateway.devices.agent.probe.machine import find_user_homes
from tests.gateway.devices.agent.probe.trees import Tree
from tests.rounds import part

OWNER = (54321, 54321)
AS_ROOT, AS_OWNER = "as root", "as the owner"
SECRET = '{"telemetry": {"enabled": true, "otlpEndpoint": "http://root.example.com"}}'

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def place() -> Iterator[Path]:
    """Make a folder that all users can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def home(place: Path) -> Path:
    """Make a home of another user, next to a secret of root."""
    home = place / "home"
    home.mkdir(mode=0o700)
    own(home)
    secret = place / "secret"
    secret.mkdir(mode=0o700)
    (secret / "settings.json").write_text(SECRET)
    (secret / "settings.json").chmod(0o600)
    return home


def own(path: Path) -> Path:
    if os.geteuid() == 0:
        os.chown(path, *OWNER, follow_symlinks=False)
    return path


@contextmanager
def user(who: str) -> Iterator[None]:
    """Run the block as the owner of the home, or as root."""
    if who == AS_ROOT or os.geteuid() != 0:
        yield
        return
    os.setegid(OWNER[1])
    os.seteuid(OWNER[0])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@needs_root
def test_a_policy_that_its_users_cannot_read(place: Path) -> None:
    """A tree that was copied with private folders applies to nobody but root."""
    tree = Tree(place)
    folder = own(place / "home/ada")
    tree.homes["ada"] = UserHome(folder=GuardedFolder(folder, OWNER), user=OWNER[0])
    write(folder / ".codex/config.toml", "")
    file = tree.apply_policy("codex")
    assert ("unused", "") == tree.state("codex")
    for private in (file, file.parent):
        private.chmod(0o700)
        assert ("not_configured", "policy_not_applied") == tree.state("codex")
        private.chmod(0o755)
    assert ("unused", "") == tree.state("codex")


def write(path: Path, text: str = "{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for each in (path, path.parent):
        own(each)
    return path


def link_to_file(home: Path) -> None:
    write(home / ".gemini/x")
    (home / ".gemini/settings.json").symlink_to(home.parent / "secret/settings.json")


def link_to_own_file(home: Path) -> None:
    write(home / ".gemini/x", SECRET)
    (home / ".gemini/settings.json").symlink_to(home / ".gemini/x")


def link_to_folder(home: Path) -> None:
    (home / ".gemini").symlink_to(home.parent / "secret")


def hard_link(home: Path) -> None:
    write(home / ".gemini/x")
    (home / ".gemini/settings.json").hardlink_to(home.parent / "secret/settings.json")


def fifo(home: Path) -> None:
    write(home / ".gemini/x")
    os.mkfifo(home / ".gemini/settings.json")
    own(home / ".gemini/settings.json")


def unix_socket(home: Path) -> None:
    write(home / ".gemini/x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / ".gemini/settings.json"))
    own(home / ".gemini/settings.json")


def huge(home: Path) -> None:
    write(home / ".gemini/settings.json", SECRET + " " * MOST_BYTES)


def endless(home: Path) -> None:
    os.truncate(write(home / ".gemini/settings.json"), 2**40)


def unreadable(home: Path) -> None:
    write(home / ".gemini/settings.json", SECRET).chmod(0)


def closed_folder(home: Path) -> None:
    write(home / ".gemini/settings.json", SECRET)
    (home / ".gemini").chmod(0)


def folder(home: Path) -> None:
    write(home / ".gemini/settings.json/x")


def loop(home: Path) -> None:
    (home / ".gemini").symlink_to(home / ".gemini")


HOSTILE = (
    link_to_file, link_to_own_file, link_to_folder, hard_link, fifo, unix_socket, huge, endless, unreadable,
    closed_folder, folder, loop,
)  # fmt: skip


@needs_root
@pytest.mark.parametrize("who", [AS_ROOT, AS_OWNER])
@pytest.mark.parametrize("make", HOSTILE)
def test_a_hostile_file(home: Path, make: object, who: str) -> None:
    """
    The probe reads no hostile file, such as a link to a secret, whether it runs as root or as the owner. Root's
    rights are complete again afterwards.
    """
    assert callable(make)
    make(home)
    with user(who):
        place = GuardedFolder(home, OWNER)
        with pytest.raises(UnreadableFile):
            place.read_file(".gemini/settings.json")
        with suppress(UnreadableFile):
            place.session_files(".gemini/tmp", SHAPES)
        place.names_in_folder(".gemini")
        assert place.exists(".gemini")
    assert (0, 0) == (os.geteuid(), os.getegid())
    assert (home.parent / "secret/settings.json").read_text() == SECRET


@needs_root
@pytest.mark.parametrize("make", part(HOSTILE, every=3))
def test_the_state_for_a_hostile_home(home: Path, tmp_path: Path, make: object) -> None:
    """
    If a file of an assistant cannot be read, this assistant's state is unknown, and the user's other assistants
    keep their states.
    """
    assert callable(make)
    make(home)
    write(home / ".codex/config.toml", '[otel]\nexporter = "none"\n')
    tree = Tree(tmp_path)
    tree.homes = {"eve": UserHome(folder=GuardedFolder(home, OWNER))}
    assert ("unknown", "no_permission") == tree.state("gemini-cli")
    assert ("telemetry_off", "settings") == tree.state("codex")
    assert "root.example.com" not in str(tree.look(report=("endpoint",)))


@needs_root
def test_a_file_that_only_root_can_read(home: Path) -> None:
    """Root reads a home with the owner's ids, and its own files with its own."""
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text("{}")
    (home / ".gemini/settings.json").chmod(0o600)
    with pytest.raises(UnreadableFile):
        GuardedFolder(home, OWNER).read_file(".gemini/settings.json")
    assert GuardedFolder(home).read_file(".gemini/settings.json") is not None


@pytest.mark.parametrize("who", [AS_ROOT, AS_OWNER])
def test_a_usual_file(home: Path, who: str) -> None:
    write(home / ".gemini/settings.json", "x" * MOST_BYTES)
    with user(who):
        found = GuardedFolder(home, OWNER).read_file(".gemini/settings.json")
    assert found is not None
    assert found[0] == b"x" * MOST_BYTES
    assert found[1] == (home / ".gemini/settings.json").stat().st_mtime


def test_no_file_and_no_folder(tmp_path: Path) -> None:
    for place in (GuardedFolder(tmp_path), GuardedFolder(tmp_path / "missing")):
        assert place.read_file("a/b") is None
        assert place.session_files("a", SHAPES) == {}
        assert place.names_in_folder("a") == []
        assert not place.exists("a")


SHAPES = (("[^.].*", r"(\w+)\.jsonl"), ("[^.].*", r"(\w+)", "agents", r".*\.jsonl"))


def test_the_files_of_sessions(home: Path) -> None:
    """All files of a session count together. Nothing else counts, such as files that are deeper than sessions."""
    one = write(home / "sessions/2026/a.jsonl", "x" * 9)
    agent = write(home / "sessions/2026/a/agents/b.jsonl", "x" * 5)
    other = write(home / "sessions/2027/c.jsonl", "x" * 3)
    for path in (
        "2026/a/b.jsonl",
        "2026/a.txt",
        "a.jsonl",
        ".x/d.jsonl",
        "2026/e.jsonl/f",
        "2026/a/agents/x/g.jsonl",
    ):
        write(home / "sessions" / path)
    for file, changed_at in ((one, 1000), (agent, 2000), (other, 3000)):
        os.utime(file, (changed_at, changed_at))
    found = GuardedFolder(home, OWNER).session_files("sessions", SHAPES)
    assert {"a": (14, 2000), "c": (3, 3000)} == found


@needs_root
@pytest.mark.parametrize("who", [AS_ROOT, AS_OWNER])
@pytest.mark.parametrize("path", ["sessions", "sessions/2026", "sessions/2026/a.jsonl"])
def test_a_link_to_own_sessions_is_followed_and_another_is_not(home: Path, path: str, who: str) -> None:
    """
    A link to a folder of somebody else shows nothing of it, whoever may read the folder. Its home cannot be judged.
    """
    ours, theirs = (
        write(home / "elsewhere/sessions/2026/a.jsonl"),
        home.parent / "secret/sessions/2026/a.jsonl",
    )
    theirs.parent.mkdir(parents=True)
    theirs.write_text("x")
    for folder in theirs.parents[:3]:
        folder.chmod(0o755)
    own(home / "elsewhere/sessions")
    link = home / path
    if link.parent != home:
        write(link.parent / "x").unlink()
    link.symlink_to(home / "elsewhere" / path)
    with user(who):
        found = GuardedFolder(home, OWNER).session_files("sessions", SHAPES)
    assert {"a": (ours.stat().st_size, ours.stat().st_mtime)} == found
    link.unlink()
    link.symlink_to(home.parent / "secret" / path)
    with user(who), pytest.raises(UnreadableFile):
        GuardedFolder(home, OWNER).session_files("sessions", SHAPES)


def test_a_home_with_endless_sessions(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home with too many entries cannot be judged, because uses might be in those that were not seen."""
    for number in range(20):
        write(home / f"sessions/{number:02}/a{number:02}.jsonl")
    assert 20 == len(GuardedFolder(home).session_files("sessions", SHAPES))
    monkeypatch.setattr(folders, "MOST_ENTRIES", 39)
    with pytest.raises(UnreadableFile):
        GuardedFolder(home).session_files("sessions", SHAPES)


@pytest.mark.proof
def test_a_search_of_20000_sessions_costs_little_time(home: Path) -> None:
    folder = home / "sessions/2026"
    folder.mkdir(parents=True)
    for number in range(folders.MOST_ENTRIES - 1):
        (folder / f"a{number}.jsonl").touch()
    begin = time.process_time()
    assert folders.MOST_ENTRIES - 1 == len(GuardedFolder(home).session_files("sessions", SHAPES))
    assert time.process_time() - begin < 1


@needs_root
def test_homes_belong_to_their_accounts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that another account owns is left out, and so are accounts of services."""
    import pwd

    def account(name: str, uid: int, directory: Path) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, uid, "", str(directory), "/bin/bash"))

    others = home.parent / "others"
    others.mkdir()
    accounts = [
        account("eve", OWNER[0], home),
        account("twin", OWNER[0], home),
        account("mallory", OWNER[0] + 1, home),
        account("service", 99, home),
        account("nobody", 65534, home),
        account("gone", OWNER[0] + 2, home.parent / "missing"),
        account("root", 0, others),
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: accounts)
    assert [OWNER[0], 0] == [each.user for each in find_user_homes()]
