"""Signing in and out: sessions, links to the console, and the OpenID provider."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator.address import NOTHING, SIGNED_IN
from gateway.operator.people import accounts, provider_sign_in, sign_in
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION

ROWS = (
    call("POST", "/sessions", None, sign_in.sign_in, "Sign in", takes=sign_in.SignIn, status=201, shows=NOTHING),
    call("GET", "/session", SIGNED_IN, sign_in.show_session, "Who is signed in", shows=NOTHING),
    call("DELETE", "/session", SIGNED_IN, sign_in.sign_out, "Sign out", shows=NOTHING),
    call("GET", "/sessions", ORGANIZATION_ADMINISTRATION, accounts.list_sessions, "List who is signed in",
         lists=accounts.SESSIONS),
    call("DELETE", "/sessions/{id}", ORGANIZATION_ADMINISTRATION, accounts.end_session, "End a session"),
    call("POST", "/console-links", ORGANIZATION_ADMINISTRATION, sign_in.make_link, "Make a one-time link",
         takes=sign_in.NewLink, status=201),
    call("GET", "/sign-in-ways", None, provider_sign_in.show_ways, "How people sign in", shows=NOTHING),
    # Not in a folder of their own: their cookies are for the folder of the API.
    call("GET", "/oidc", None, provider_sign_in.begin_sign_in, "Go to the OpenID provider to sign in", status=303,
         gives={}, shows=NOTHING),
    call("GET", "/oidc-callback", None, provider_sign_in.finish_sign_in, "Come back from the OpenID provider",
         status=303, gives={}, checks_query=False, shows=NOTHING),
    call("POST", "/oidc-logout", None, provider_sign_in.end_provider_sessions,
         "End sessions with a logout token of the OpenID provider", shows=NOTHING),
)  # fmt: skip
