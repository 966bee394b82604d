"""What a write through Spark starts by itself, as commands for the bridge; the operation `merge_here`."""

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.log.snapshot import Snapshot
from indextables.maintain import on_write
from indextables.options import Options
from indextables.options import on_write as opt
from indextables.options.maintenance import MERGE_BATCH
from indextables.spark.planner.tables import addressed

Answer = tuple[Mapping[str, Any], Sequence[bytes]]

# The commands name a table, but which one it is the options say.
_TABLE = "written"


def upkeep(snapshot: Snapshot, options: Options, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The commands that follow a commit, and whether the write waits for them; empty if there are none."""
    due = on_write.due(snapshot, options, request["parallelism"])
    purges = on_write.purges_after(request["writes"], options)
    if due is None and not purges:
        return {}
    wanted: dict[str, Any] = {
        "background": options.get(opt.MERGE_IN_BACKGROUND),
        "patience": options.get(opt.SHUTDOWN_TIMEOUT_MS),
        "purges": purges,
        "purges_after_merge": on_write.purges_after_merge(options),
        "purge": (
            f"PURGE INDEXTABLE {_TABLE} OLDER THAN {options.get(opt.PURGE_SPLIT_HOURS)} HOURS "
            f"TRANSACTION LOG RETENTION {options.get(opt.PURGE_LOG_HOURS)} HOURS"
        ),
    }
    if due is not None:
        most = due.batch * options.get(opt.BATCHES_AT_ONCE)
        wanted["merge"] = f"MERGE SPLITS {_TABLE} TARGET SIZE {due.wish.target_bytes} MAX DEST SPLITS {most}"
        wanted["options"] = {MERGE_BATCH.key.lower(): str(due.batch)}
    return {"upkeep": wanted}


def merge_here(request: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
    """Merge after a write in this process: Spark is ending, and its executors are gone."""
    del blobs
    table = addressed(request)
    on_write.merge_now(table.log, table.options, processors=request["parallelism"])
    return {}, ()
