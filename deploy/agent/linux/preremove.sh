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
	;;
esac
