"""
The commands for policy bundles check a bundle, write and delete its files, and change no file of anybody else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.devices.agent.policy import applied
from gateway.devices.agent.policy.applied import BadBundle, CheckedBundle
from gateway.devices.agent.policy.bundle import MANIFEST, SIGNATURE, build_bundle
from gateway.devices.agent.policy.signatures import PublicKey, SigningKey, new_private_pem
from gateway.devices.agent.policy.targets import (
    LINUX,
    MACOS,
    MANAGED,
    RECORDS,
    Destination,
    paths_a_bundle_may_write,
)

SIGNING_KEY = SigningKey(new_private_pem())
PUBLIC_KEY = PublicKey(SIGNING_KEY.public_pem)
GEMINI = "etc/gemini-cli/settings.json"
AGENT = "http://127.0.0.1:4318"
RECORD = "var/lib/tollhouse-policy/record.json"


def write_bundle(directory: Path, *names: str, endpoint: str = AGENT, number: int = 1) -> Path:
    assistants = [MANAGED[name] for name in names or MANAGED]
    destination = Destination(endpoint=endpoint)
    files = build_bundle(
        assistants, destination, SIGNING_KEY, bundle_number=number, has_environment=not names
    )
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def checked(directory: Path, *names: str, endpoint: str = AGENT, number: int = 1) -> CheckedBundle:
    return applied.verify_bundle(
        write_bundle(directory, *names, endpoint=endpoint, number=number), PUBLIC_KEY
    )


def files_of(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make the root of a machine with folders that Tollhouse did not create."""
    root = tmp_path / "root"
    for folder in ("etc", "var/lib", "Library", "private/etc"):
        (root / folder).mkdir(parents=True)
    return root


def test_there_and_back(tmp_path: Path, root: Path) -> None:
    """
    `apply` writes all files readable for all users. A second `apply` changes nothing. A removal leaves only the
    record.
    """
    before = set(root.rglob("*"))
    whole = checked(tmp_path / "policy")
    written = applied.apply_bundle(whole, LINUX, root).written
    assert {path[1:] for path in written} | {RECORD} == files_of(root)
    assert set(written) == paths_a_bundle_may_write(LINUX)
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in set(root.rglob("*")) - before if path.is_dir()} == {0o755}
    assert applied.apply_bundle(whole, LINUX, root).written == []
    assert set(applied.remove_policy(LINUX, root).removed) == set(written)
    record = root / RECORD
    assert set(root.rglob("*")) == before | {record, record.parent}
    assert applied.apply_bundle(whole, LINUX, root).written == sorted(written)


def test_a_mac_gets_its_own_files(tmp_path: Path, root: Path) -> None:
    """On a Mac, files that a profile of the MDM would hide are not written, and the profile is named."""
    profile = root / "Library/Managed Preferences/com.anthropic.claudecode.plist"
    profile.parent.mkdir()
    profile.write_bytes(b"bplist00")
    outcome = applied.apply_bundle(checked(tmp_path / "policy"), MACOS, root)
    assert outcome.hidden == {"claude-code": "/Library/Managed Preferences/com.anthropic.claudecode.plist"}
    assert not (root / "Library/Application Support/ClaudeCode").exists()
    assert (root / "Library/Application Support/GeminiCli/settings.json").exists()
    assert (root / "private/etc/codex/managed_config.toml").exists()


def test_a_foreign_file_stays(tmp_path: Path, root: Path) -> None:
    """`apply` leaves a file that somebody else wrote, or that somebody changed, and writes the others."""
    file = root / GEMINI
    file.parent.mkdir()
    file.write_text('{"ui": {}}')
    whole = checked(tmp_path / "policy")
    outcome = applied.apply_bundle(whole, LINUX, root)
    assert set(outcome.foreign) == {f"/{GEMINI}"}
    assert f"/{GEMINI}" not in outcome.written and outcome.written
    assert file.read_text() == '{"ui": {}}'
    codex = root / "etc/codex/managed_config.toml"
    codex.write_text(codex.read_text() + "# mine\n")
    removed = applied.remove_policy(LINUX, root)
    assert set(removed.foreign) == {"/etc/codex/managed_config.toml"}
    assert files_of(root) == {GEMINI, "etc/codex/managed_config.toml", RECORD}


def test_a_newer_bundle_replaces_an_older_one(tmp_path: Path, root: Path) -> None:
    """`apply` deletes files that only the older bundle has, and gives the others their new content."""
    applied.apply_bundle(checked(tmp_path / "first"), LINUX, root)
    newer = checked(tmp_path / "second", "codex", endpoint="http://127.0.0.1:14318", number=2)
    outcome = applied.apply_bundle(newer, LINUX, root)
    assert outcome.written == ["/etc/codex/managed_config.toml"]
    # the settings of five other assistants and of the environment are removed as well
    assert len(outcome.removed) == len(MANAGED)
    assert "127.0.0.1:14318" in (root / "etc/codex/managed_config.toml").read_text()
    assert files_of(root) == {"etc/codex/managed_config.toml", RECORD}


def test_bundles_only_grow(tmp_path: Path, root: Path) -> None:
    """
    `apply` refuses a bundle with a lower number, or with other bytes under the same number, also after a removal.
    `--older` applies both.
    """
    other = {"endpoint": "http://127.0.0.1:14318"}
    first, same = checked(tmp_path / "1", number=5), checked(tmp_path / "2", number=5, **other)
    older, newer = checked(tmp_path / "3", number=4, **other), checked(tmp_path / "4", number=6)
    applied.apply_bundle(first, LINUX, root)
    codex = root / "etc/codex/managed_config.toml"
    for _ in range(2):
        for refused, message in (
            (older, "4, and a bundle with 5 was applied"),
            (same, "number 5 was applied"),
        ):
            with pytest.raises(BadBundle, match=message):
                applied.apply_bundle(refused, LINUX, root)
        assert not codex.exists() or ":4318" in codex.read_text()
        applied.remove_policy(LINUX, root)
    assert applied.apply_bundle(first, LINUX, root).written
    assert applied.apply_bundle(newer, LINUX, root).written == []
    with pytest.raises(BadBundle, match="6 was applied"):
        applied.apply_bundle(first, LINUX, root)
    assert applied.apply_bundle(older, LINUX, root, allows_older=True).written
    assert ":14318" in codex.read_text()
    assert applied.apply_bundle(first, LINUX, root).written


def test_a_number_cannot_be_changed(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path / "policy", number=4)
    manifest = directory / MANIFEST
    manifest.write_text(manifest.read_text().replace('"number": 4', '"number": 5'))
    with pytest.raises(BadBundle, match="not signed"):
        applied.verify_bundle(directory, PUBLIC_KEY)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_crash_between_record_and_file_is_no_foreign_file(
    tmp_path: Path, root: Path, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After a crash during the replacement of a file, the next `apply` completes it, and a removal deletes the file.
    """
    applied.apply_bundle(checked(tmp_path / "first", "codex"), LINUX, root)
    newer = checked(tmp_path / "second", "codex", endpoint="http://127.0.0.1:14318", number=2)
    write = applied._FileTree.write_file

    def crashes(tree: applied._FileTree, path: str, content: bytes) -> None:
        if path.startswith("/var") or is_written:
            write(tree, path, content)
        if not path.startswith("/var"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(applied._FileTree, "write_file", crashes)
        with pytest.raises(KeyboardInterrupt):
            applied.apply_bundle(newer, LINUX, root)
    assert applied.apply_bundle(newer, LINUX, root).foreign == {}
    assert "14318" in (root / "etc/codex/managed_config.toml").read_text()
    assert applied.remove_policy(LINUX, root).foreign == {}
    assert files_of(root) == {RECORD}


@pytest.mark.proves("Somebody changes managed settings on their way to laptops")
@pytest.mark.parametrize("folder", ["etc", "etc/gemini-cli", GEMINI, "var/lib/tollhouse-policy"])
def test_no_link_is_followed(tmp_path: Path, root: Path, folder: str) -> None:
    """
    If a link is in the path of a file, or in its place, `apply` refuses before it writes anything through the link.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = root / folder
    if path.is_dir():
        path.rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(elsewhere / "file" if folder == GEMINI else elsewhere)
    with pytest.raises(BadBundle, match="link"):
        applied.apply_bundle(checked(tmp_path / "policy", "gemini-cli"), LINUX, root)
    assert list(elsewhere.iterdir()) == []


def test_an_error_names_the_whole_path(tmp_path: Path, root: Path) -> None:
    (root / GEMINI).mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as caught:
        applied.apply_bundle(checked(tmp_path / "policy", "gemini-cli"), LINUX, root)
    assert f"/{GEMINI}" == caught.value.filename


def changed(directory: Path) -> None:
    file = directory / "linux" / GEMINI
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(bytes(content))


def added(directory: Path) -> None:
    (directory / "linux/etc/more.json").write_text("{}")


def missing(directory: Path) -> None:
    (directory / "merge/codex.toml").unlink()


def linked(directory: Path) -> None:
    file = directory / "linux" / GEMINI
    file.rename(directory.with_suffix(".json"))
    file.symlink_to(directory.with_suffix(".json"))


def linked_folder(directory: Path) -> None:
    (directory / "merge").rename(directory.with_suffix(".merge"))
    (directory / "merge").symlink_to(directory.with_suffix(".merge"))


def other_manifest(directory: Path) -> None:
    manifest = directory / MANIFEST
    manifest.write_text(manifest.read_text().replace("/etc/codex/", "/etc/cron.d/"))


def other_signature(directory: Path) -> None:
    other = SigningKey(new_private_pem())
    (directory / SIGNATURE).write_bytes(other.sign((directory / MANIFEST).read_bytes()))


def too_large(directory: Path) -> None:
    (directory / MANIFEST).write_bytes(b" " * (applied.MOST_BYTES + 1))


@pytest.mark.proves("Somebody changes managed settings on their way to laptops")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed, "was changed"),
        (added, "not in the manifest"),
        (missing, "is missing"),
        (linked, "is a link"),
        (linked_folder, "is a link"),
        (other_manifest, "not signed"),
        (other_signature, "not signed"),
        (too_large, "larger than"),
    ],
)
def test_a_damaged_bundle_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    directory = write_bundle(tmp_path / "policy")
    applied.verify_bundle(directory, PUBLIC_KEY)
    damage(directory)
    with pytest.raises(BadBundle, match=message):
        applied.verify_bundle(directory, PUBLIC_KEY)


def resigned(directory: Path, file: str, content: bytes, old: str, new: str) -> None:
    """Change a file and the manifest, and sign the manifest with the right key."""
    (directory / file).write_bytes(content)
    manifest = json.loads((directory / MANIFEST).read_text().replace(old, new))
    for row in manifest["files"]:
        row["sha256"] = sha256((directory / row["path"]).read_bytes()).hexdigest()
    signed = json.dumps(manifest).encode()
    (directory / MANIFEST).write_bytes(signed)
    (directory / SIGNATURE).write_bytes(SIGNING_KEY.sign(signed))


@pytest.mark.proves("Somebody changes managed settings on their way to laptops")
def test_a_signed_bundle_writes_only_known_paths(tmp_path: Path, root: Path) -> None:
    """Even the signing key cannot make a machine write another path, or a file that is malformed."""
    directory = write_bundle(tmp_path / "policy", "gemini-cli")
    resigned(directory, "linux/" + GEMINI, b"{}", f'"/{GEMINI}"', '"/etc/cron.d/evil"')
    with pytest.raises(BadBundle, match=r"/etc/cron.d/evil is not a path of managed settings"):
        applied.apply_bundle(applied.verify_bundle(directory, PUBLIC_KEY), LINUX, root)
    assert files_of(root) == set()
    resigned(directory, "linux/" + GEMINI, b"{", "", "")
    with pytest.raises(BadBundle, match="malformed"):
        applied.verify_bundle(directory, PUBLIC_KEY)


def test_a_record_never_leads_to_another_path(tmp_path: Path, root: Path) -> None:
    """
    If the record of applied files names another path, as an older version might, a removal deletes nothing there.
    """
    victim = root / "etc/passwd"
    victim.write_text("root")
    record = {"files": {"/etc/passwd": [sha256(b"root").hexdigest()]}, "folders": []}
    (root / RECORD).parent.mkdir()
    (root / RECORD).write_text(json.dumps(record))
    assert applied.remove_policy(LINUX, root).removed == []
    assert victim.exists()
    (root / RECORD).parent.mkdir(exist_ok=True)
    (root / RECORD).write_text("{")
    with pytest.raises(BadBundle, match="damaged"):
        applied.remove_policy(LINUX, root)


def test_a_record_deletes_no_folder_outside_the_table(tmp_path: Path, root: Path) -> None:
    """If the record of applied files names another empty folder, a removal leaves that folder."""
    applied.apply_bundle(checked(tmp_path / "bundle", "claude-code"), LINUX, root)
    path = root / RECORDS[LINUX][1:]
    record = json.loads(path.read_bytes())
    record["folders"].append("/srv/empty")
    path.write_text(json.dumps(record))
    (root / "srv/empty").mkdir(parents=True)
    applied.remove_policy(LINUX, root)
    assert (root / "srv/empty").is_dir()
