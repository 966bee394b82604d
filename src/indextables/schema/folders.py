"""Names of partition folders: `column=value`, escaped so that any text comes back."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

# What Hive and Spark escape, and besides: what a URL or a file system could misread, a dot that would
# make a name mean "here" or "above", a leading or trailing blank.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^<>|&+;,@$!`~\x80-\x9f\u2028\u2029]|^[. ]|[. ]$""")


def escape_path(text: str) -> str:
    """The text as one part of a path.

    >>> escape_path("a/b=50%")
    'a%2Fb%3D50%25'
    """
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def unescape_path(text: str) -> str:
    """The text that was escaped; a percent sign that begins no escape stays as it is."""
    return unquote(text, errors="surrogateescape")


def folder(values: Iterable[tuple[str, str]]) -> str:
    """The folder of a partition, relative to the table; empty for no partition columns.

    >>> folder([("day", "2024-01-01"), ("city", "Aix/Arc")])
    'day=2024-01-01/city=Aix%2FArc'
    """
    return "/".join(f"{escape_path(name)}={escape_path(value)}" for name, value in values)


def parse_folder(path: str) -> list[tuple[str, str]]:
    """The partition columns and values that the folders of a relative path name, in order."""
    found = []
    for part in path.split("/"):
        name, equals, value = part.partition("=")
        if equals and name:
            found.append((unescape_path(name), unescape_path(value)))
    return found
