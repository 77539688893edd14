"""
`tollhouse agent`: a Tollhouse on a device. It sends to a gateway, and its local endpoints need no key.

Some coding assistants (Gemini CLI, Qwen Code, Copilot) cannot send a header, and a key in settings files
would protect nothing, because any program of the user can read them. So the agent accepts telemetry from this
machine without a key, on the default addresses of OpenTelemetry. It listens only on loopback, and refuses
browsers (`gateway.http.admission`). Senders can read nothing, except whether a named session may continue
(`gateway.devices.agent.hook`).
"""
