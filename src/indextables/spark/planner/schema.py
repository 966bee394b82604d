"""The operation `schema`: what a table consists of, if there is one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from indextables.errors import OptionError, TableNotFoundError
from indextables.options import Options
from indextables.options.declare import is_secret
from indextables.spark.planner.tables import addressed


def schema(request: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The schema, as Spark writes it, and the partition columns; nothing of these where there is no table."""
    del blobs
    _check_kept(request.get("kept") or ())
    if "kept" in request and "path" not in request["options"]:
        Options.parse(request["options"])
        return {}, ()
    table = addressed(request)
    try:
        snapshot = table.snapshot()
    except TableNotFoundError:
        return {"url": table.store.url}, ()
    return {
        "url": table.store.url,
        "schema": snapshot.metadata.schema_string,
        "partitions": list(snapshot.partition_columns),
        "version": snapshot.version,
    }, ()


def _check_kept(keys: Iterable[str]) -> None:
    """Refuse to have secrets where everyone reads them."""
    if secret := sorted(key for key in keys if is_secret(key)):
        raise OptionError(
            f"the catalog would keep {', '.join(secret)} in clear text; give it as a session conf "
            f"(spark.indextables.{secret[0]}) or as an option of each read and write instead"
        )
