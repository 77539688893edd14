# A policy for Envoy's ext_authz that refuses calls by the verdicts of Tollhouse: docs/money/verdict-adapters.md
package envoy.authz

import rego.v1

is_closed := false # true: refuse calls while no valid table is known

headers := input.attributes.request.http.headers

call := {"api_key": object.get(headers, "x-key-name", ""), "team": object.get(headers, "x-team", "")}

is_valid if time.now_ns() < time.parse_rfc3339_ns(data.tollhouse.valid_until)

matches(row) if {
	every name, values in row.match.include { object.get(call, name, "") in values }
	every name, values in row.match.exclude { not object.get(call, name, "") in values }
}

refused contains row.name if {
	is_valid
	some row in data.tollhouse.rows
	row.state == "over"
	matches(row)
}

default allow := false

allow if {
	is_valid
	count(refused) == 0
}

allow if {
	not is_valid
	not is_closed
}
