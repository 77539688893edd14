"""
`tollhouse agent`: a Tollhouse on a device. It sends to a gateway, and its local endpoints need no key.

Some coding assistants (Gemini CLI, Qwen Code, Copilot) cannot send a header. A key in five settings files
would protect nothing, because any program of the user can read the files. So the agent accepts telemetry from
this machine without a key, on the default addresses of OpenTelemetry. It listens only on loopback, refuses
browsers (`gateway.http.admission`), and allows sending, but no reading, except whether a session that is named may go
on (`gateway.devices.agent.hook`).
"""
