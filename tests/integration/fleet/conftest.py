from tests.spool.disks.flushing import unflushed as unflushed
