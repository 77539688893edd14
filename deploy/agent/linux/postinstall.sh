#!/bin/sh
# dpkg calls this with `configure` and the old version, rpm with the number of versions after the installation.
set -e
units=$(cd /usr/lib/systemd/system && ls tollhouse-agent.service tollhouse-agent.path tollhouse-agent*.timer 2>/dev/null || true)
# dpkg states the old version at an installation after a removal as well
removed=/var/lib/tollhouse-agent.removed
if [ "$1" = configure ] && [ -e "$removed" ]; then
	rm -f "$removed"
	set -- configure
fi
case "$1:$2" in
configure: | 1:*)
	# shellcheck disable=SC2086
	systemctl enable $units >/dev/null 2>&1 || echo "tollhouse-agent: enable these units: $units"
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		# shellcheck disable=SC2086
		systemctl start $units || true
	fi
	;;
configure:* | 2:*)
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		# shellcheck disable=SC2086
		systemctl try-restart $units || true
	fi
	;;
esac
