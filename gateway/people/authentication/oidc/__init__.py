"""Sign-in with an OpenID provider: its addresses and keys, its tokens, and the sessions."""
