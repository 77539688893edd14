"""
`tollhouse agent`: the device's side. A Tollhouse whose upstream is its gateway, with local doors that ask for no key.

Coding assistants differ in whether their settings can carry a header at all (Gemini CLI, Qwen Code and Copilot cannot),
and a key that lies in five settings files guards nothing from whoever can read them. So the agent takes telemetry from
this machine without a key, as OpenTelemetry's own default addresses are meant; it listens on loopback alone, turns
browsers away (`gateway.http.boundary`), and what comes in can only be sent, never read.
"""
