#!/bin/sh
# dpkg calls this with `remove`, `purge` or `upgrade`, rpm with the number of versions that stay.
set -e
if [ "$1" = remove ]; then
	: >/var/lib/tollhouse-agent.removed # for the next installation
fi
if [ "$1" = purge ]; then
	rm -f /var/lib/tollhouse-agent.removed /etc/tollhouse/agent.toml
fi
case "$1" in
purge | 0)
	# The secrets of the device: a later installation enrols again. rpm knows no purge, so its removal deletes them.
	rm -rf /etc/tollhouse/agent-keys
	rm -f /var/lib/private/tollhouse-agent/device.key
	rmdir /etc/tollhouse 2>/dev/null || true
	# Records that were not delivered yet may be nowhere else: their end is the administrator's decision.
	if [ -d /var/lib/private/tollhouse-agent ]; then
		echo "tollhouse-agent: the records in /var/lib/private/tollhouse-agent were kept; remove them if nobody needs them"
	fi
	;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
