"""
`tollhouse agent`: a Tollhouse on a device, whose upstream is its gateway and whose local endpoints ask
for no key.

Coding assistants differ in whether their settings can carry a header at all (Gemini CLI, Qwen Code and
Copilot cannot), and a key in five settings files protects nothing from whoever can read them. So the agent
takes telemetry from this machine without a key, on OpenTelemetry's default addresses. It listens on loopback
alone, refuses browsers (`gateway.http.admission`), and grants sending only, never reading.
"""
