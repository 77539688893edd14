"""Notifications and their channels."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator import channels, notifications
from gateway.operator.address import NOTHING
from spool.registry.permission_sets import (
    INSTALLATION_ADMINISTRATION,
    OPERATE_SPOOL,
    VIEW_COSTS,
    VIEW_OPERATION,
)

ROWS = (
    call("GET", "/notifications", VIEW_OPERATION, notifications.list_notifications, "List notifications",
         lists=notifications.NOTIFICATIONS),
    call("GET", "/notifications/{id}", VIEW_OPERATION, notifications.show_notification, "Show a notification"),
    call("POST", "/notifications/retry", OPERATE_SPOOL, notifications.retry_notifications, "Send notifications again",
         takes=notifications.ChosenNotifications),
    call("POST", "/notifications/discard", OPERATE_SPOOL, notifications.discard_notifications, "Give notifications up",
         takes=notifications.ChosenNotifications),
    call("GET", "/notification-channels", VIEW_OPERATION, notifications.list_channels,
         "List the channels that send notifications", lists=notifications.CHANNELS),
    call("POST", "/notification-channels", INSTALLATION_ADMINISTRATION, channels.add_channel, "Create a channel",
         takes=channels.NewChannel, status=201),
    call("GET", "/notification-channels/{name}", VIEW_OPERATION, channels.show_channel,
         "Show a channel that was made in the console"),
    call("PATCH", "/notification-channels/{name}", INSTALLATION_ADMINISTRATION, channels.edit_channel,
         "Change a channel", takes=channels.ChannelChanges),
    call("DELETE", "/notification-channels/{name}", INSTALLATION_ADMINISTRATION, channels.remove_channel,
         "Delete a channel"),
    call("GET", "/channel-names", VIEW_COSTS, notifications.list_channel_names, "List the names of the channels",
         shows=NOTHING),
    call("POST", "/notification-channels/{name}/test", OPERATE_SPOOL, notifications.test_channel,
         "Send a notice that shows whether a channel works", takes=notifications.ChannelTest, status=201),
)  # fmt: skip
