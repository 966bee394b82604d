"""Paths inside a store: what is allowed, and how they are put together.

A path is names joined by "/", relative to the store's root. Names are taken as they are: "=", "%", spaces,
":" and any letter of any alphabet reach every kind of store unchanged; what some store cannot keep is refused
on all.
"""

import re

from indextables.errors import StoreError
from indextables.limits import MAX_OBJECT

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 1024  # bytes: the limit of S3, GCS and Azure for a whole key


def check(path: str) -> str:
    """The path of an object, if it is one.

    >>> check("day=2024-01-01/part%2F1 x.split")
    'day=2024-01-01/part%2F1 x.split'
    >>> check("../etc")
    Traceback (most recent call last):
    indextables.errors.StoreError: path '../etc' has a part '..'; write it without '.' and '..'
    """
    if not path:
        raise StoreError("the path of an object is empty; name the object, relative to the store's root")
    if (control := _CONTROL.search(path)) is not None:
        raise StoreError(
            f"path {path!r} has the control character {control[0]!r}, which not every store can keep; "
            "escape it, for example as %0A"
        )
    if "\\" in path:
        raise StoreError(f"path '{path}' has a backslash, which Azure takes for a slash; escape it as %5C")
    for part in path.split("/"):
        if part == "":
            raise StoreError(
                f"path '{path}' has an empty part; write it relative to the store's root, with single slashes"
            )
        if part in (".", ".."):
            raise StoreError(f"path '{path}' has a part '{part}'; write it without '.' and '..'")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise StoreError(f"path {path!r} is not valid Unicode (a lone surrogate); rename it") from None
    if length > _LONGEST:
        raise StoreError(
            f"path '{path[:60]}...' has {length} bytes; object stores allow {_LONGEST}; use shorter names"
        )
    return path


def check_folder(prefix: str) -> str:
    """A folder's path, without a slash at its end; the root is the empty one.

    >>> check_folder("day=1/")
    'day=1'
    """
    folder = prefix.removesuffix("/")
    return check(folder) if folder else ""


def check_size(url: str, size: int) -> None:
    """Refuse to read an object into memory that no table has: whole objects are small."""
    if size > MAX_OBJECT:
        raise StoreError(
            f"{url} has {size} bytes, and no object that is read as a whole has more than {MAX_OBJECT}; "
            "it is damaged, or no part of a table"
        )


def join(folder: str, path: str) -> str:
    """A path below a folder; either may be empty.

    >>> join("table", "_transaction_log"), join("", "x"), join("table", "")
    ('table/_transaction_log', 'x', 'table')
    """
    return f"{folder}/{path}" if folder and path else folder or path
