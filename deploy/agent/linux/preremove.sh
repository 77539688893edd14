#!/bin/sh
# dpkg calls this with `remove` or `upgrade`, rpm with the number of versions that stay.
set -e
case "$1" in
remove | 0)
	for unit in $(cd /usr/lib/systemd/system && ls tollhouse-agent*); do
		if [ -d /run/systemd/system ]; then
			systemctl stop "$unit" || true
		fi
		systemctl disable "$unit" >/dev/null 2>&1 || true
	done
	# the gateway shows the machine as `left`; its key stays valid for a week, and records stay until it returns
	if [ -e /etc/tollhouse/agent.toml ] && [ -e /var/lib/private/tollhouse-agent/device.key ]; then
		tollhouse agent unenrol --keep-key --wait 10 --config /etc/tollhouse/agent.toml --data /var/lib/private/tollhouse-agent || true
	fi
	;;
esac
