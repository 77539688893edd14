"""
Reasons why a sign-in failed: a code in the address of the sign-in page, and the sentence that the page
shows for it.
"""

from __future__ import annotations

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "state": (
        "This sign-in has expired, was already used, or started in another browser or at another "
        "address. Sign in again."
    ),
    "denied": (
        "The sign-in was canceled at the provider, or the provider did not allow it. Sign in again, or "
        "contact the provider's administrator."
    ),
    "down": (
        "The provider does not respond correctly. Try again in a minute, or run `tollhouse check` on the "
        "gateway's machine to see the reason. You can also sign in with a local account or `tollhouse "
        "console link`."
    ),
    "code": "The provider does not know this sign-in, or it was already used. Sign in again.",
    "token": "The provider's token could not be verified. Sign in again; the log of Tollhouse has the reason.",
    "email": (
        "The provider has no verified e-mail address for you. Verify it there, or contact an "
        "administrator of Tollhouse about `oidc.assume_verified_email` and `oidc.named_by`."
    ),
    "domain": (
        "E-mail addresses of your domain may not sign in. Contact an administrator about "
        "`oidc.allowed_domains`."
    ),
    "group": "You are in no group that may sign in. Contact an administrator about `oidc.allowed_groups`.",
    "taken": (
        "Another operator account has your e-mail address. Sign in with its password, or contact an "
        "administrator: `oidc.link_accounts` joins local accounts with those of the provider."
    ),
    "disabled": "Your account is disabled. Contact an administrator, who can run `tollhouse operators enable`.",
    "attempts": "Your network made too many sign-in attempts. Wait a minute, then sign in again.",
    "unavailable": "Tollhouse cannot store a sign-in now. Try again in a minute; its log has the reason.",
    "off": "Sign-in with a provider is not set up. An administrator can configure it in `[oidc]`.",
}


class SignInProblem(Exception):
    """Raised if a sign-in failed. `problem_word` is one of PROBLEMS."""

    def __init__(self, problem_word: str) -> None:
        super().__init__(PROBLEMS[problem_word])
        self.word = problem_word


class ProviderDown(Exception):
    """
    Raised if the provider does not respond correctly. The text describes the failure and contains no secret.
    """


class GrantRefused(Exception):
    """Raised if the provider no longer accepts this code or refresh token."""


class TokenRefused(Exception):
    """Raised for an invalid token. The text is the reason and contains nothing of the token."""
