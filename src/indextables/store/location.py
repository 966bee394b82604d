"""Parses the URL or path of a table, and checks paths of objects below it.

URLs are not percent-decoded, as in Spark and Hadoop: names of partition folders may contain "%". A path is
names joined by "/", relative to the store's root; names that some kind of store does not allow are refused
for all kinds.
"""

import os
import re
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from indextables.errors import StoreError
from indextables.limits import MAX_OBJECT
from indextables.records import dataclass

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]*")
_HOST = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+){2,}(:\d{1,5})?")
# The hosts of Azure's storage, in all of its clouds.
_AZURE_HOSTS = (
    ".core.windows.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".core.cloudapi.de",
    ".storage.azure.net",
    ".fabric.microsoft.com",
)
_NAME_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:\d{1,5})?")
_FORMS = "a path, file://, s3://, s3a://, az://, abfss://, wasbs://, gs://, hdfs:// or memory://"


class Kind(StrEnum):
    """The kinds of stores."""

    LOCAL = "local"
    MEMORY = "memory"
    S3 = "s3"
    AZURE = "azure"
    GCS = "gcs"
    HDFS = "hdfs"


_KINDS = {
    "file": Kind.LOCAL,
    "memory": Kind.MEMORY,
    "s3": Kind.S3,
    "s3a": Kind.S3,
    "s3n": Kind.S3,
    "az": Kind.AZURE,
    "azure": Kind.AZURE,
    "abfs": Kind.AZURE,
    "abfss": Kind.AZURE,
    "wasb": Kind.AZURE,
    "wasbs": Kind.AZURE,
    "gs": Kind.GCS,
    "gcs": Kind.GCS,
    "hdfs": Kind.HDFS,
}


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a store.

    `bucket` is the bucket, the container, the name of a memory, a name node or name service of HDFS, or empty
    on the local disk; `host` is the account's host where an Azure URL names it; `root` is the path within,
    without slashes around it. `hierarchical` is true if it may be ADLS Gen2, whose listings differ in order.
    """

    kind: Kind
    bucket: str
    root: str
    host: str = ""
    hierarchical: bool = False

    @property
    def base(self) -> str:
        """The URL of the bucket, to which "/" and a path can be added."""
        match self.kind:
            case Kind.LOCAL:
                return "file://"
            case Kind.MEMORY:
                return f"memory://{self.bucket}"
            case Kind.S3:
                return f"s3://{self.bucket}"
            case Kind.GCS:
                return f"gs://{self.bucket}"
            case Kind.HDFS:
                return f"hdfs://{self.bucket}"
            case Kind.AZURE if self.host:
                return f"abfss://{self.bucket}@{self.host}"
            case Kind.AZURE:
                return f"{'abfss' if self.hierarchical else 'az'}://{self.bucket}"
            case kind:
                assert_never(kind)

    @property
    def url(self) -> str:
        """The URL, normalised: one scheme for each kind, no credentials, no slash at the end."""
        return join(self.base, self.root)

    @property
    def is_of_cloud(self) -> bool:
        """Whether requests go to the provider of the cloud; an Azure URL may name any host."""
        return not self.host or self.host.endswith(_AZURE_HOSTS)

    @property
    def account(self) -> str:
        """The storage account, where the URL names it."""
        return self.host.partition(".")[0]

    def at(self, prefix: str) -> "Location":
        """The location of a folder below this one."""
        return replace(self, root=join(self.root, check_folder(prefix)))


def locate(url: str | os.PathLike[str]) -> Location:
    """Parse a URL or a local path.

    >>> locate("s3a://bucket/tables/t/").url
    's3://bucket/tables/t'
    >>> locate("wasbs://data@acme.blob.core.windows.net/t").url
    'abfss://data@acme.dfs.core.windows.net/t'
    >>> locate("ftp://name/t")
    Traceback (most recent call last):
    indextables.errors.StoreError: 'ftp://name/t' has the scheme 'ftp', which is not supported; use a path, file://, s3://, s3a://, az://, abfss://, wasbs://, gs://, hdfs:// or memory://
    """  # noqa: E501 - the sentence as it is raised
    text = os.fspath(url)
    if not text:
        raise StoreError(f"the table's path is empty; give {_FORMS}")
    match = _SCHEME.match(text)
    if match is None:
        return Location(Kind.LOCAL, "", _absolute(_check_mounted(text, text)))
    scheme = match[1].lower()
    if scheme == "dbfs":
        return _databricks(text, text[match.end() :])
    kind = _KINDS.get(scheme)
    if kind is None:
        raise StoreError(
            f"'{_without_user(text)}' has the scheme '{match[1]}', which is not supported; use {_FORMS}"
        )
    rest = text[match.end() :]
    if kind is Kind.LOCAL:
        return _local(text, rest)
    if not rest.startswith("/"):
        raise StoreError(f"'{_without_user(text)}' lacks a slash; write {scheme}://...")
    authority, _, path = rest[1:].partition("/")
    root = check_folder(path)
    if kind is Kind.AZURE:
        return _azure(scheme, authority, root)
    if "@" in authority:
        raise StoreError(
            f"a {scheme} URL has an '@' before its bucket; credentials do not belong into a URL: "
            "give them as options or in the environment"
        )
    if kind is Kind.HDFS:
        return Location(kind, _name_node(authority), root)
    return Location(kind, _bucket(authority, scheme), root)


def has_scheme(text: str) -> bool:
    """Whether a text starts with a scheme, as a URL does and a path does not.

    >>> has_scheme("s3a://bucket/t"), has_scheme("/data/t"), has_scheme("data/t")
    (True, False, False)
    """
    return _SCHEME.match(text) is not None


def is_whole_url(path: str) -> bool:
    """Whether the path of an object is a whole URL, or an absolute path of the local disk.

    >>> is_whole_url("s3a://bucket/t/a.split"), is_whole_url("/data/t/a.split"), is_whole_url("day=1/a.split")
    (True, True, False)
    """
    return path.startswith("/") or has_scheme(path)


def relative_to(url: str, root: Location) -> str:
    """The path of an object, given by its whole URL, relative to a location above it.

    >>> relative_to("s3a://bucket/t/day=1/a.split", locate("s3://bucket/t"))
    'day=1/a.split'

    Raises:
        StoreError: the URL is invalid, or the object is not below that location.
    """
    whole = locate(url).url
    if not whole.startswith(f"{root.url}/"):
        raise StoreError(
            f"the path {whole} is not below {root.url}; open the table by the URL that its log uses, or "
            "REPAIR it"
        )
    return whole.removeprefix(f"{root.url}/")


def _local(text: str, rest: str) -> Location:
    # Hadoop writes file:/tmp/x, others file:///tmp/x; other hosts than this one are refused
    if rest.startswith("/"):
        host, slash, path = rest[1:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise StoreError(f"'{_without_user(text)}' names a host; a local URL is file:///path")
        rest = path
    return Location(Kind.LOCAL, "", _absolute(_check_mounted("/" + rest, text)))


# Where Databricks mounts its file system, and the volumes of Unity Catalog.
DBFS = "/dbfs"
VOLUMES = "/Volumes"
_INSTEAD = (
    "use the URL of the cloud store behind it (s3://, abfss://, gs://), which DESCRIBE VOLUME or DESCRIBE "
    "EXTENDED shows, with credentials.provider=unity-catalog or keys"
)


def _databricks(text: str, rest: str) -> Location:
    """A path of Databricks' file system, through the folder where it is mounted."""
    if rest.startswith("/") and not rest.startswith("//"):
        raise StoreError(f"'{_without_user(text)}' names a host; write dbfs:/path")
    path = "/" + rest.lstrip("/")
    if path == VOLUMES or path.startswith(f"{VOLUMES}/"):
        return Location(Kind.LOCAL, "", _absolute(_check_mounted(path, text)))
    if not os.path.isdir(DBFS):  # noqa: PTH112 - as below
        raise StoreError(f"'{text}' is a path of Databricks, but {DBFS} is not mounted here; {_INSTEAD}")
    return Location(Kind.LOCAL, "", _absolute(DBFS + path))


def _check_mounted(path: str, text: str) -> str:
    """A local path, unless it is one of a Unity Catalog volume and volumes are not mounted here."""
    if path.startswith(f"{VOLUMES}/") and not os.path.isdir(VOLUMES):  # noqa: PTH112 - a string is what we have
        raise StoreError(
            f"'{text}' is a path of a Unity Catalog volume, but {VOLUMES} is not mounted here; {_INSTEAD}"
        )
    return path


def _absolute(path: str) -> str:
    return os.path.abspath(path).strip("/")  # noqa: PTH100 - pathlib does not fold ".." without following links


def _azure(scheme: str, authority: str, root: str) -> Location:
    container, at, host = authority.partition("@")
    if not at:
        return Location(Kind.AZURE, _bucket(container, scheme), root, "", scheme.startswith("abfs"))
    if ":" in container or _HOST.fullmatch(host) is None:
        raise StoreError(
            f"an {scheme} URL is expected as {scheme}://container@account.dfs.core.windows.net/path, "
            "without credentials"
        )
    host = host.lower().replace(".blob.", ".dfs.", 1)
    return Location(Kind.AZURE, _bucket(container, scheme), root, host, hierarchical=True)


def _name_node(authority: str) -> str:
    if _NAME_NODE.fullmatch(authority) is None:
        raise StoreError(
            "an hdfs URL is expected as hdfs://host:port/path or hdfs://name-service/path; without both, set "
            "fs.defaultFS"
        )
    return authority


def _bucket(name: str, scheme: str) -> str:
    if _BUCKET.fullmatch(name) is None:
        shown = (
            "***" if ":" in name else name
        )  # the text before a colon may be a user, and the text after it a secret
        raise StoreError(
            f"'{shown}' is not the name of a bucket or container; write {scheme}://name/path"
            if name
            else f"a {scheme} URL without the name of a bucket or container; write {scheme}://name/path"
        )
    return name


def _without_user(text: str) -> str:
    """A URL without the part up to the last '@', which may be a user and a password."""
    return re.sub(r"(:/+).*@", r"\1***@", text, count=1, flags=re.DOTALL)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 1024  # bytes: the limit of S3, GCS and Azure for a whole key


def check(path: str) -> str:
    """Check the path of an object; returns it.

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
            f"path {path!r} has the control character {control[0]!r}, which not every store allows; "
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
    """Check a folder's path; returns it without a slash at its end. The root is the empty path.

    >>> check_folder("day=1/")
    'day=1'
    """
    folder = prefix.removesuffix("/")
    return check(folder) if folder else ""


def check_size(url: str, size: int) -> None:
    """Refuse to read an object into memory that is larger than any file of a table."""
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
