"""Links of sessions, branches and commits to pull requests and tickets."""
