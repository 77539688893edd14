"""The installation: configuration, backup and demo month."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator.installation import backup, configuration, demo
from spool.registry.permission_sets import INSTALLATION_ADMINISTRATION, OPERATE_SPOOL, VIEW_OPERATION

ROWS = (
    call("GET", "/configuration", OPERATE_SPOOL, configuration.list_configuration, "List the settings in effect",
         lists=configuration.CONFIGURATION),
    call("POST", "/reload", INSTALLATION_ADMINISTRATION, configuration.reload, "Take the configuration over",
         takes=configuration.ConfigReload),
    call("POST", "/backup", INSTALLATION_ADMINISTRATION, backup.back_up,
         "Back the data up into a directory of the server's machine",
         takes=backup.BackupPlace, status=201),
    call("GET", "/demo", VIEW_OPERATION, demo.read_demo, "Read whether a demo month is loaded"),
    call("POST", "/demo", INSTALLATION_ADMINISTRATION, demo.load_demo,
         "Load a demo month, apart from what is real, while no record has arrived",
         takes=demo.DemoLoad, status=201),
    call("DELETE", "/demo", INSTALLATION_ADMINISTRATION, demo.remove_demo, "Remove the demo month"),
)  # fmt: skip
