"""
Why nobody was signed in: a word in the address of the sign-in page, and the sentence that the page shows for it.
"""

from __future__ import annotations

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "state": "This sign-in is too old, was used, or began in another browser or under another address. Sign in again.",
    "denied": "The provider was told to stop, or did not let you in. Sign in again, or ask who runs the provider.",
    "down": "The provider does not answer as it should. Try again in a minute; `tollhouse check` on the gateway's "
    "machine says what is wrong. A local account or `tollhouse console link` works without it.",
    "code": "The provider does not know this sign-in, or it was used before. Sign in again.",
    "token": "What the provider sent could not be trusted. Sign in again; the log of Tollhouse says what was wrong.",
    "email": "The provider gives no verified e-mail address for you. Verify it there, or ask an administrator of "
    "Tollhouse about `oidc.assume_verified_email` and `oidc.named_by`.",
    "domain": "E-mail addresses of your domain may not sign in. Ask an administrator about `oidc.allowed_domains`.",
    "group": "You are in none of the groups that may sign in. Ask an administrator about `oidc.allowed_groups`.",
    "taken": "Another operator has your e-mail address. Sign in with its password, or ask an administrator: "
    "`oidc.link_accounts` joins local accounts with those of the provider.",
    "disabled": "Your account is disabled here. Ask an administrator: `tollhouse operators enable`.",
    "attempts": "Too many attempts came from your network. Wait a minute, then sign in again.",
    "unavailable": "Tollhouse cannot keep a sign-in now. Try again in a minute; its log says why.",
    "off": "Signing in with a provider is not set up: `[oidc]` in the configuration.",
}


class SignInProblem(Exception):
    """Nobody is signed in; `word` is one of PROBLEMS."""

    def __init__(self, word: str) -> None:
        super().__init__(PROBLEMS[word])
        self.word = word


class ProviderDown(Exception):
    """The provider does not answer as one does; the text says how, and holds no secret."""


class GrantRefused(Exception):
    """The provider knows this code or refresh token no more."""


class TokenRefused(Exception):
    """A token that proves nothing; the text says why, and holds nothing of the token."""
