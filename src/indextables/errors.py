"""All errors of this package.

They have one root class: `except IndexTablesError` catches all of them and nothing else. Each class has
attributes for programs, and a message that names the object, says what was expected and what to do.
"""


class IndexTablesError(Exception):
    """The root of all errors raised by this package.

    `not_committed` is true only if certainly no version refers, or will ever refer, to the files of the
    failed commit. Only then may those files be deleted (PROTOCOL.md, "Deleting files").
    """

    not_committed: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the message and the attributes, without a call of `__init__`."""
        return _unpickle, (type(self), self.args, self.__dict__)


def _unpickle(
    kind: type[IndexTablesError], args: tuple[object, ...], attributes: dict[str, object]
) -> IndexTablesError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


# --- arguments -------------------------------------------------------------------------------------


class OptionError(IndexTablesError):
    """An option is unknown, malformed, or has no effect where it was given."""


class PredicateError(IndexTablesError):
    """A condition has a wrong syntax, an unknown column, or a wrong type."""

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class CommandError(IndexTablesError):
    """A command has a wrong syntax, or is not allowed."""

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class SchemaError(IndexTablesError):
    """Columns or types do not fit the table, or are not supported."""


class NewColumnError(SchemaError):
    """Rows have a column that the table does not have."""

    def __init__(self, column: str) -> None:
        super().__init__(
            f"the table has no column {column}; set mergeSchema to add it, or leave the column out"
        )
        self.column = column


class ColumnTypeError(SchemaError):
    """Rows have a column whose type does not fit that of the table."""

    def __init__(self, column: str, table_type: str, row_type: str) -> None:
        self.mismatch = f"column {column} is {table_type} in the table, but {row_type} in the rows"
        super().__init__(f"{self.mismatch} to append; cast it to the table's type")


class TableNotFoundError(IndexTablesError):
    """There is no table at the path."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"no table at {url}: it has no _transaction_log with a version or a state; "
            "check the path, or write a table there first"
        )
        self.url = url


class TableReplacedError(IndexTablesError):
    """The version that a query was planned with, or the table that is followed, was deleted or replaced."""


class TableExistsError(IndexTablesError):
    """There is already a table at the path."""

    def __init__(self, url: str) -> None:
        super().__init__(f"a table exists at {url}; append to it, overwrite it, or choose another path")
        self.url = url


# --- storage ---------------------------------------------------------------------------------------


class StoreError(IndexTablesError):
    """A storage operation failed."""


class ObjectMissingError(StoreError):
    """There is no object at the path."""

    def __init__(self, url: str) -> None:
        super().__init__(f"no object at {url}")
        self.url = url


class CredentialsError(StoreError):
    """The store refused the credentials, or there are none."""


class OutcomeUnknownError(StoreError):
    """Storage failed, and it is unknown whether an object was created.

    The object may exist, or may appear later, with the bytes that were written.
    """

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(
            f"it is unknown whether {url} was created ({cause}); check whether it exists, and with which "
            "content, before repeating the operation"
        )
        self.url = url
        self.cause = cause


class NotDurableError(OutcomeUnknownError):
    """An object was created and can be read, but the disk did not confirm that it survives a power cut.

    Reading it back proves nothing, since it may come from memory. The outcome is unknown.
    """


class UnsafeStoreError(StoreError):
    """The store cannot create an object only if it is absent, so commits could be lost."""


class ForkedStoreError(StoreError):
    """A storage handle was used in a forked child of the process that opened it."""


# --- the log ---------------------------------------------------------------------------------------


class LogError(IndexTablesError):
    """The transaction log could not be read or written."""


class CorruptLogError(LogError):
    """A file of the log is missing or damaged, so that the table's files are unknown."""

    def __init__(self, url: str, problem: str, *, remedy: str | None = None) -> None:
        remedy = remedy or (
            "restore the file from a backup, open an earlier version, or rebuild the log with "
            "REPAIR INDEXFILES TRANSACTION LOG"
        )
        super().__init__(f"{url}: {problem}; {remedy}")
        self.url = url
        self.problem = problem


class StateExpiredError(LogError):
    """Files that a new state refers to were cleaned up while it was written; the state is not used."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url} cannot be used: the state before it, or manifests, were cleaned up while it was written; "
            "the table is unchanged; repeat the checkpoint"
        )
        self.url = url


class ProtocolError(LogError):
    """The table requires a protocol version or a feature that this release does not have."""


class VersionNotFoundError(LogError):
    """The requested version or time does not exist, or was cleaned up."""

    def __init__(self, url: str, requested: str, earliest: int | None, latest: int) -> None:
        reach = f"versions {earliest} to {latest}" if earliest is not None else "no version"
        super().__init__(
            f"{requested} of the table at {url} cannot be read: {reach} can be read; "
            "earlier ones were cleaned up, later ones do not exist"
        )
        self.url = url
        self.requested = requested
        self.earliest = earliest
        self.latest = latest


class HistoryExpiredError(LogError):
    """The changes of a version cannot be read: the log was truncated or cleaned up."""

    def __init__(self, url: str, version: int, earliest: int | None, latest: int) -> None:
        reach = (
            f"the changes of versions {earliest} to {latest} can be read: start there, or read"
            if earliest is not None
            else "no version has changes that can be read: read"
        )
        super().__init__(
            f"the changes of version {version} of the table at {url} cannot be read any more: its log "
            f"was truncated or cleaned up; {reach} the whole table and continue after version {latest}"
        )
        self.url = url
        self.version = version
        self.earliest = earliest
        self.latest = latest


class CommitConflictError(LogError):
    """The commit conflicts with another one; it has no visible effect."""

    not_committed = True

    def __init__(self, operation: str, problem: str, *, version: int, other: str) -> None:
        super().__init__(
            f"{operation} conflicts with version {version} ({other}): {problem}; "
            "nothing was changed; read the table again and repeat the operation"
        )
        self.operation = operation
        self.problem = problem
        self.version = version
        self.other = other


class CommitAttemptsError(LogError):
    """All attempts to commit failed because other writers committed first."""

    not_committed = True

    def __init__(self, url: str, operation: str, attempts: int) -> None:
        super().__init__(
            f"{operation} on {url} failed {attempts} times: other writers committed first; nothing was "
            "changed; repeat it, or raise spark.indextables.transaction.retry.maxAttempts"
        )
        self.attempts = attempts


class CommitUnknownError(LogError):
    """Storage failed, and it is unknown whether the commit is visible.

    Files of the commit must not be deleted: the version may refer to them. `token` identifies the commit;
    `Table.commit_outcome(token)` returns whether it is in the table.
    """

    def __init__(self, url: str, version: int, cause: str, *, token: str) -> None:
        super().__init__(
            f"it is unknown whether version {version} of {url} was committed ({cause}); its files remain; "
            f"before repeating the operation call Table.commit_outcome('{token}'), or search for this token "
            "in the table's history"
        )
        self.version = version
        self.cause = cause
        self.token = token


# --- splits ----------------------------------------------------------------------------------------


class SplitError(IndexTablesError):
    """A split could not be written or read."""


class IndexCacheError(SplitError):
    """The local cache cannot store an index: its disk is full, or its folder cannot be used."""


class UnreadableSplitError(SplitError):
    """A split of a merge cannot be read; the others may be merged without it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"the split {path} cannot be read: {problem}")
        self.path = path
        self.problem = problem


class UnavailableSplitError(SplitError):
    """A split of a merge could not be fetched from storage; it may be intact."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"the split {path} could not be fetched: {problem}")
        self.path = path
        self.problem = problem


class QuerySyntaxError(IndexTablesError):
    """A search query is malformed."""

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class UnknownFieldError(IndexTablesError):
    """A search names a field that the table does not have."""


# --- sources of companion indexes ------------------------------------------------------------------


class SourceError(IndexTablesError):
    """The source of a companion index, a Delta, Iceberg or Parquet table, could not be read."""


class SourceNotFoundError(SourceError):
    """There is no table of the kind at the location, or it lacks the version."""


class UnsupportedSourceError(SourceError):
    """The source uses a feature with which it cannot be read exactly; `feature` names it."""

    def __init__(self, feature: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{problem}; {feature} is not supported{f': {remedy}' if remedy else ''}")
        self.feature = feature


class SourceChangedError(SourceError):
    """A file of the source was deleted or changed since the snapshot was read."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"the source file {url} {problem}; the source changed: sync again")
        self.url = url


class MissingExtraError(SourceError):
    """A library that reads a kind of source is not installed."""

    def __init__(self, extra: str, library: str) -> None:
        super().__init__(
            f"reading this source needs {library}, which is not installed: pip install 'indextables[{extra}]'"
        )
        self.extra = extra


def is_panic(error: BaseException) -> bool:
    """Whether the error is a panic of a library in Rust, which is a BaseException but no Exception."""
    return type(error).__name__ == "PanicException"
