"""
`tollhouse agent`: a Tollhouse on a device. It sends to a gateway, and its local endpoints need no key.

Some coding assistants (Gemini CLI, Qwen Code, Copilot) cannot send a header, and a key in settings files would
protect nothing, because any program of the user can read them. So the agent accepts telemetry from this machine
without a key, on the default addresses of OpenTelemetry. It listens only on loopback, refuses browsers
(`gateway.http.admission`), and allows sending, but no reading, except whether a named session may go on
(`gateway.devices.agent.hook`).
"""
