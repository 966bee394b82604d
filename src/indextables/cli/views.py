"""What people are shown of a command's result; programs (--json, --csv) get all of it as it is."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from indextables.cli.render import readable_bytes, text_of

View = Callable[[pa.Table], pa.Table]


def seen(words: str, result: pa.Table) -> pa.Table:
    """The result of a command of the program, as people are shown it."""
    return _VIEWS[words](result) if words in _VIEWS else result


def _only(*names: str) -> View:
    return lambda result: result.select(names)


def _flat(result: pa.Table) -> pa.Table:
    """The figures beside the rest instead of inside; what only programs ask for is left out."""
    flat = result.select(["table_path", "metrics"]).flatten()
    return flat.rename_columns([name.removeprefix("metrics.") for name in flat.column_names])


def _history(result: pa.Table) -> pa.Table:
    """The figures that matter, in columns of their own."""
    figures = [dict(entry or ()) for entry in result["metrics"].to_pylist()]
    said = [dict(entry or ()) for entry in result["parameters"].to_pylist()]
    return pa.table(
        {
            "version": result["version"],
            "time (UTC)": pc.strftime(
                pc.floor_temporal(result["timestamp"], unit="second").cast(pa.timestamp("s")),
                format="%Y-%m-%d %H:%M:%S",
            ),
            "operation": result["operation"],
            "added": [f.get("numAddedFiles") for f in figures],
            "removed": [f.get("numRemovedFiles") for f in figures],
            "rows": [f.get("numAddedRecords") for f in figures],
            "size": [_size(f.get("numAddedBytes")) for f in figures],
            "parameters": [", ".join(f"{k}={text_of(v)}" for k, v in each.items() if v) for each in said],
        }
    )


def _jobs(done: str, total: str) -> View:
    """How far jobs are, in few columns."""

    def view(result: pa.Table) -> pa.Table:
        counts = zip(result[done].to_pylist(), result[total].to_pylist(), strict=True)
        millis = result["duration_ms"].to_pylist()
        made = {
            "job": result["job_id"],
            "table": result["table_path"],
            "status": result["status"],
            "done": [f"{n}/{of}" for n, of in counts],
            "seconds": [ms / 1000 for ms in millis],
        }
        if result["error_message"].null_count < result.num_rows:
            made["error"] = [text or "" for text in result["error_message"].to_pylist()]
        return pa.table(made)

    return view


def _size(count: int | None) -> str:
    return "" if count is None else readable_bytes(count)


_VIEWS: dict[str, View] = {
    "history": _history,
    "merge": _flat,
    "purge": _flat,
    "describe log": _only(
        "version",
        "action_type",
        "path",
        "partition_values",
        "size",
        "num_records",
        "skip_reason",
        "is_checkpoint",
    ),
    "jobs merge": _jobs("completed_groups", "total_groups"),
    "jobs prewarm": _jobs("completed_splits", "total_splits"),
    "wait": _jobs("splits_prewarmed", "total_splits"),
}
