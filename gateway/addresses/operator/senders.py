"""Devices, clusters and files of container metrics."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.lists import clusters as cluster_lists
from gateway.operator.senders import clusters, container_files, devices
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION

ROWS = (
    call("GET", "/devices", VIEW_OPERATION, devices.list_devices, "List devices", lists=devices.DEVICES),
    call("GET", "/unenrolled", VIEW_OPERATION, devices.list_unenrolled, "List names of devices that are not enrolled",
         lists=devices.UNENROLLED),
    call("GET", "/devices/{id}", VIEW_OPERATION, devices.show_device, "Show a device"),
    call("POST", "/devices", OPERATE_SPOOL, devices.admit_device, "Enrol a device before it reports",
         takes=devices.Admission, status=201),
    call("DELETE", "/devices/{id}", OPERATE_SPOOL, devices.delete_device, "Delete a device and end its key",
         required=("confirm",)),
    call("POST", "/devices/{id}/approve", OPERATE_SPOOL, devices.approve_device,
         "Enrol a pending or revoked device"),
    call("POST", "/devices/{id}/revoke", OPERATE_SPOOL, devices.revoke_device, "Refuse a device from now on"),
    call("POST", "/devices/{id}/reset", OPERATE_SPOOL, devices.reset_device,
         "Forget a device's fingerprint and key"),
    call("PATCH", "/devices/{id}", OPERATE_SPOOL, devices.label_device, "Label a device", takes=devices.Labels),
    call("GET", "/clusters", VIEW_OPERATION, clusters.list_clusters, "List clusters", lists=cluster_lists.CLUSTERS),
    call("GET", "/clusters/{id}", VIEW_OPERATION, clusters.show_cluster, "Show a cluster"),
    call("PATCH", "/clusters/{id}", OPERATE_SPOOL, clusters.change_cluster,
         "Name, label, enable or configure a cluster", takes=cluster_lists.ClusterChanges),
    call("DELETE", "/clusters/{id}", OPERATE_SPOOL, clusters.delete_cluster, "Forget a cluster until it reports again",
         required=("confirm",)),
    call("GET", "/container-metrics", VIEW_OPERATION, container_files.show_container_metrics,
         "The books of container metrics, and what waits of each cluster"),
    call("GET", "/container-files", VIEW_OPERATION, container_files.list_container_files,
         "List files of container metrics",
         lists=container_files.CONTAINER_FILES),
    call("POST", "/container-files/{id}/discard", OPERATE_SPOOL, container_files.discard_container_file,
         "Give up a file that waits for the upstream", takes=container_files.Discard),
)  # fmt: skip
