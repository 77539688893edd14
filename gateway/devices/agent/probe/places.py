"""
The known names of each program of an assistant: programs, packages, and folders of settings, on each system.

Paths of Linux were checked with the real programs. Those of macOS and Windows follow the vendors' documentation.
All paths are relative: those of the machine to its root, and those of a user to the home directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.devices.agent.policy.targets import LINUX, MACOS, WINDOWS

# operating system -> folders in which programs, and packages of Node, are installed
PROGRAM_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    LINUX: ("usr/bin", "usr/local/bin", "snap/bin"),
    MACOS: ("usr/local/bin", "opt/homebrew/bin"),
    WINDOWS: ("Program Files/nodejs",),
}
PACKAGE_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    LINUX: ("usr/lib/node_modules", "usr/local/lib/node_modules"),
    MACOS: ("usr/local/lib/node_modules", "opt/homebrew/lib/node_modules"),
    WINDOWS: ("Program Files/nodejs/node_modules",),
}
USER_PROGRAM_FOLDERS: Final = (
    ".local/bin",
    ".npm-global/bin",
    ".bun/bin",
    ".volta/bin",
    "AppData/Roaming/npm",
)
USER_PACKAGE_FOLDERS: Final = (
    ".npm-global/lib/node_modules",
    ".local/lib/node_modules",
    ".bun/install/global/node_modules",
    "AppData/Roaming/npm/node_modules",
)
# folder with one folder per version of Node, each with lib/node_modules
NODE_VERSIONS: Final = ".nvm/versions/node"
EXTENSIONS: Final = (".vscode/extensions", ".vscode-server/extensions")

_CODE: Final = {
    LINUX: ".config/Code/User/settings.json",
    MACOS: "Library/Application Support/Code/User/settings.json",
    WINDOWS: "AppData/Roaming/Code/User/settings.json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantLocations:
    """
    The names of one program's files and variables.

    `folders`, or an `extension` of VS Code, show that a user has the program. Without a `package`, nothing else does.
    `since` is the first version that reads the policy, if it is not that of the assistant. `settings` is the user's
    file by system, and `server` the copy of a policy that a server sent. `more_managed` are system folders that contain
    the files of a policy. `variables` are files of the user with environment variables; only the first existing file
    applies. `stronger` are user settings that take precedence over `settings`. `moved` is the variable that moves the
    policy's file.
    """

    program: str
    package: str = ""
    since: str = ""
    folders: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    server: str = ""
    versions: str = ""  # folder in which each installed version has a folder of its name
    extension: str = ""
    more_managed: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    stronger: tuple[str, ...] = ()
    moved: str = ""


def _same_path_on_all_systems(path: str) -> dict[str, str]:
    return dict.fromkeys((LINUX, MACOS, WINDOWS), path)


# by name of a program, see gateway.devices.agent.sessions
PLACES: Final[Mapping[str, AssistantLocations]] = {
    "claude-code": AssistantLocations(
        program="claude",
        package="@anthropic-ai/claude-code",
        folders=(".claude", ".claude.json"),
        settings=_same_path_on_all_systems(".claude/settings.json"),
        server=".claude/remote-settings.json",
        versions=".local/share/claude/versions",
        more_managed={
            LINUX: "etc/claude-code",
            MACOS: "Library/Application Support/ClaudeCode",
            WINDOWS: "Program Files/ClaudeCode",
        },
    ),
    "codex": AssistantLocations(
        program="codex",
        package="@openai/codex",
        folders=(".codex",),
        settings=_same_path_on_all_systems(".codex/config.toml"),
    ),
    "copilot_chat": AssistantLocations(
        program="code", since="0.56", settings=_CODE, extension="github.copilot-chat-"
    ),
    "copilot_cli": AssistantLocations(program="copilot", package="@github/copilot", folders=(".copilot",)),
    "gemini-cli": AssistantLocations(
        program="gemini",
        package="@google/gemini-cli",
        folders=(".gemini",),
        settings=_same_path_on_all_systems(".gemini/settings.json"),
        variables=(".gemini/.env", ".env"),
        moved="GEMINI_CLI_SYSTEM_SETTINGS_PATH",
    ),
    "qwen-code": AssistantLocations(
        program="qwen",
        package="@qwen-code/qwen-code",
        folders=(".qwen",),
        settings=_same_path_on_all_systems(".qwen/settings.json"),
        variables=(".qwen/.env", ".env"),
        moved="QWEN_CODE_SYSTEM_SETTINGS_PATH",
    ),
    "opencode": AssistantLocations(
        program="opencode",
        package="opencode-ai",
        folders=(".config/opencode", ".local/share/opencode", ".opencode"),
        settings=_same_path_on_all_systems(".config/opencode/opencode.json"),
        stronger=(".config/opencode/opencode.jsonc",),
    ),
}

ENVIRONMENT_FILES: Final = ("etc/environment",)
ENVIRONMENT_FOLDER: Final = "etc/environment.d"
USER_ENVIRONMENT_FILES: Final = (".profile", ".bash_profile", ".bashrc", ".zshenv", ".zprofile", ".zshrc")
USER_ENVIRONMENT_FOLDER: Final = ".config/environment.d"
