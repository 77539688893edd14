"""
`tollhouse agent probe`: inspects the coding assistants of this machine, and states for each why it reports or
not.

`states` evaluates facts, `telemetry` reads settings, `places` has the known names, `folders` opens files, and
`look` collects the facts. Only known names are opened, and of session files only the modification time is
read.
"""
