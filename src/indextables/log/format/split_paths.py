"""The grammar of split paths in the log, and where such a path lies (PROTOCOL.md, "Paths").

A path is relative to the table's folder, or it is a whole URL of an object below that folder. Everything else
is refused: a file whose name cannot be compared must never be taken for one that nobody needs.
"""

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogError, StoreError
from indextables.store.location import locate, relative_to
from indextables.store.paths import check

# A scheme, or a slash at the start: then it is not relative to the table.
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"
# What `store.paths.check` refuses, for a whole column at once: few paths, if any, are looked at one by one.
_SUSPECT = r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f\\]"
_LONGEST = 1024


def relative_paths(paths: pa.Array, table_url: str) -> pa.Array:
    """Paths of splits as a listing of the table's folder shows them, in their order.

    Raises:
        LogError: a path follows no grammar, or leads to a place outside of the table's folder.
    """
    absolute = pc.match_substring_regex(paths, _ABSOLUTE)
    if pc.any(absolute).as_py():
        inside = [_below(path, table_url) for path in paths.filter(absolute).to_pylist()]
        paths = pc.replace_with_mask(paths, absolute, pa.array(inside, pa.string()))
    suspect = pc.or_(pc.match_substring_regex(paths, _SUSPECT), pc.greater(pc.binary_length(paths), _LONGEST))
    for path in paths.filter(suspect).to_pylist():
        _checked(path, path, table_url)
    return paths


def _below(path: str, table_url: str) -> str:
    """A whole URL or an absolute path of the local disk, relative to the table."""
    try:
        relative = relative_to(path, locate(table_url))
    except StoreError as error:
        raise _refused(path, table_url, str(error)) from error
    return _checked(relative, path, table_url)


def _checked(relative: str, path: str, table_url: str) -> str:
    try:
        return check(relative)
    except StoreError as error:
        raise _refused(path, table_url, str(error)) from error


def _refused(path: str, table_url: str, problem: str) -> LogError:
    return LogError(
        f"the log of {table_url} names the split {path!r}: {problem}; so it is not known which files the "
        "table needs, and nothing was deleted; open the table by the URL that its log uses, or REPAIR it"
    )
