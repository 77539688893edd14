"""`tollhouse agent policy` as a command: its refusals, its exit codes, and its output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spool.registry.scopes import HEARTBEAT, INGEST
from tests.acceptance.conftest import ROOT, Tollhouse
from tests.documents import blocks
from tests.processes.copied import command_in

GATEWAY = "https://tollhouse.example.com"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run an installation with keys of several rights. Each key is in a file with its name."""
    config = '[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\nchain_keys = ["near-*"]\n'
    made = Tollhouse(tmp_path_factory.mktemp("gateway"), config)
    keys = {
        "send": (),
        "near-one": (),
        "more": ("--scope", INGEST, "--scope", HEARTBEAT),
        "less": ("--scope", HEARTBEAT),
        "off": (),
    }
    for name, grants in keys.items():
        (made.directory / f"{name}.key").write_text(made.key(name, *grants))
    (made.directory / "unknown.key").write_text("th_unknown")
    (made.directory / "bad.key").write_text('th_"bad"')
    made.run("keys", "disable", "off")
    made.start()
    (made.directory / "policy.pub").write_text(made.run("agent", "policy", "key", "policy.pem", config=False))
    yield made
    made.stop()


def policy(gateway: Tollhouse, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return gateway.attempt("agent", "policy", "--signing-key", "policy.pem", "--out", str(out), *words)


@pytest.mark.proves("A user reads the key in managed settings")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--gateway", GATEWAY, "--key-file", "more.key"],
            f"may do more than send AI telemetry ({HEARTBEAT})",
        ),
        (["--gateway", GATEWAY, "--key-file", "less.key"], "may do more than send AI telemetry"),
        (["--gateway", GATEWAY, "--key-file", "near-one.key"], "server.chain_keys names the key near-one"),
        (["--gateway", GATEWAY, "--key-file", "off.key"], "the key off is disabled"),
        (["--gateway", GATEWAY, "--key-file", "unknown.key"], "no API key has this secret"),
        (["--gateway", GATEWAY, "--key-file", "bad.key"], "without spaces and quotes"),
        (["--gateway", GATEWAY, "--key-file", "missing.key"], "missing.key"),
        (["--gateway", GATEWAY], "needs --gateway and --key-file"),
        (["--gateway", "http://tollhouse.example.com", "--key-file", "send.key"], "must begin with https://"),
        (["--gateway", "https://a b", "--key-file", "send.key"], "is not an address"),
        *(
            (["--gateway", GATEWAY, "--key-file", "send.key", "--assistant", name], "needs --environment")
            for name in ("gemini-cli", "qwen-code", "opencode")
        ),
    ],
)
def test_direct_refuses(gateway: Tollhouse, tmp_path: Path, words: list[str], reason: str) -> None:
    """
    A bundle with a key is refused unless the key may only send telemetry and travels encrypted. After a refusal,
    nothing is written.
    """
    done = policy(gateway, tmp_path / "policy", "--mode", "direct", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert not (tmp_path / "policy").exists()
    for key in gateway.directory.glob("*.key"):
        assert key.read_text() not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--mode", "agent", "--gateway", GATEWAY], "must be an address of this machine"),
        (["--mode", "agent", "--key-file", "send.key"], "only for --mode direct"),
        (["--mode", "agent", "--device", "a b"], "--device may have letters"),
        (["--mode", "agent", "--assistant", "opencode"], "needs --environment"),
        (["--mode", "agent", "--signing-key", "send.key"], "not a private key in PEM format"),
        ([], "--mode, --signing-key and --out are required"),
    ],
)
def test_other_refusals(gateway: Tollhouse, tmp_path: Path, words: list[str], reason: str) -> None:
    done = policy(gateway, tmp_path / "policy", *words)
    assert done.returncode == 2
    assert reason in done.stderr


def test_direct_leaves_out_assistants_that_cannot_have_the_key(gateway: Tollhouse, tmp_path: Path) -> None:
    """
    Without --environment, a bundle with a key leaves out assistants that can read the key only from variables. Nobody
    else can open it, because of the key. Its tree has the modes that a copy on a machine needs.
    """
    out = tmp_path / "policy"
    out.mkdir(mode=0o755)
    done = policy(gateway, out, "--mode", "direct", "--gateway", GATEWAY, "--key-file", "send.key")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("left out") == 3
    assert "claude-code, codex, copilot" in done.stdout
    assert 0o700 == out.stat().st_mode & 0o777
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in out.rglob("*")}
    assert {(True, 0o755), (False, 0o644)} == modes
    again = policy(gateway, out, "--mode", "direct", "--gateway", GATEWAY, "--key-file", "send.key")
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)


def test_a_foreign_file_ends_with_its_fragment(gateway: Tollhouse, tmp_path: Path) -> None:
    """
    If `apply` finds a file that Tollhouse did not write, it ends with 3 and prints the fragment to add. If the
    fragment contains a key, it prints only the fragment's path.
    """
    root = tmp_path / "root"
    (root / "etc/codex").mkdir(parents=True)
    (root / "etc/codex/managed_config.toml").write_text('model = "gpt-5"\n')
    direct = ("--gateway", GATEWAY, "--key-file", "send.key")
    for number, mode, words in (("1", "agent", ()), ("2", "direct", direct)):
        out = tmp_path / mode
        assert policy(gateway, out, "--mode", mode, "--number", number, *words).returncode == 0
        where = ("--public-key", "policy.pub", "--root", str(root))
        done = gateway.attempt("agent", "policy", "apply", str(out), *where, config=False)
        assert done.returncode == 3, done.stderr
        assert "/etc/codex/managed_config.toml exists" in done.stderr
        assert ("log_user_prompt = false" in done.stderr) == (mode == "agent")
        assert (gateway.directory / "send.key").read_text() not in done.stdout + done.stderr
        assert (root / "etc/claude-code/managed-settings.d/50-tollhouse.json").exists()
    done = gateway.attempt("agent", "policy", "remove", "--root", str(root), config=False)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in root.rglob("*") if path.is_file())
    assert ["managed_config.toml", "record.json"] == names


def test_an_older_bundle_needs_a_word(gateway: Tollhouse, tmp_path: Path) -> None:
    """
    `apply` refuses an older bundle with exit code 1. A device id that most machines would not get leads to a
    warning.
    """
    root = tmp_path / "root"
    root.mkdir()
    for number in ("7", "8"):
        made = policy(gateway, tmp_path / number, "--mode", "agent", "--number", number, "--device", "$ID")
        assert "warning: only macOS profiles have --device" in made.stderr
    where = ("--public-key", "policy.pub", "--root", str(root))

    def apply(number: str, *words: str) -> subprocess.CompletedProcess[str]:
        return gateway.attempt(
            "agent", "policy", "apply", str(tmp_path / number), *where, *words, config=False
        )

    assert 0 == apply("8").returncode
    refused = apply("7")
    assert (1, True) == (refused.returncode, "add --older" in refused.stderr)
    assert 0 == apply("7", "--older").returncode
    done = gateway.attempt("agent", "policy", "verify", str(tmp_path / "8"), *where[:2], config=False)
    assert done.stdout.endswith("files are as signed, number 8\n")


def test_a_changed_bundle_is_refused(gateway: Tollhouse, tmp_path: Path) -> None:
    """If a file of the bundle was changed, `verify` and `apply` exit with 1 and write nothing."""
    out, root = tmp_path / "policy", tmp_path / "root"
    root.mkdir()
    assert policy(gateway, out, "--mode", "agent").returncode == 0
    with (out / "merge/codex.toml").open("a") as file:
        file.write("\n")
    for words in (("verify", str(out)), ("apply", str(out), "--root", str(root))):
        done = gateway.attempt("agent", "policy", *words, "--public-key", "policy.pub", config=False)
        assert (done.returncode, "merge/codex.toml was changed" in done.stderr) == (1, True)
    assert list(root.iterdir()) == []


def test_a_machine_that_refuses_the_write(gateway: Tollhouse, tmp_path: Path) -> None:
    """
    If a machine refuses the write, the message names the path and what to do. The test writes to /sys, in which no
    user may create folders.
    """
    out = tmp_path / "policy"
    assert policy(gateway, out, "--mode", "agent").returncode == 0
    where = ("--public-key", "policy.pub", "--root", "/sys")
    done = gateway.attempt("agent", "policy", "apply", str(out), *where, config=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tollhouse: /var/lib/tollhouse-policy/record.json: ")
    assert done.stderr.endswith("; run the command as root\n")


def test_the_commands_of_the_page_work(gateway: Tollhouse, tmp_path: Path) -> None:
    """The commands of the pages about a fleet succeed in their order. The test gives `apply` another root."""
    reader, root = tmp_path / "reader", tmp_path / "root"
    reader.mkdir()
    root.mkdir()
    (reader / "fleet.key").write_text((gateway.directory / "send.key").read_text())
    (reader / "machines.csv").write_text("serial\nC02XL0THJGH5\n")
    (reader / "computers.csv").write_text("serial,hostname\nC02XL0THJGH5,mill\n")
    commands = tmp_path / "commands"
    commands.mkdir()
    number = command_in(commands)
    environment = {
        **os.environ,
        "TOLLHOUSE_CONFIG": str(gateway.config),
        "PATH": f"{commands}:{os.environ['PATH']}",
    }
    pages = "".join(
        (ROOT / f"docs/fleet/{name}.md").read_text() for name in ("index", "enrolment", "coverage", "probe")
    )
    texts = [block.text for block in blocks(pages) if block.language == "sh"]
    for text in texts:
        line = text.replace("policy apply", f"policy apply --root {root}")
        done = subprocess.run(
            ["bash", "-euc", line], cwd=reader, env=environment, capture_output=True, text=True, timeout=600,
            pass_fds=[number],
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert sum("policy apply" in text for text in texts) == 1
    assert (root / "etc/codex/managed_config.toml").exists()
