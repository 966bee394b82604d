"""The declarations of all commands: one for SQL, the command line and Python.

A declaration has no code: the grammar of SQL (`commands.grammar`), the flags of the command line (`cli.main`)
and the reference page are derived from it. `implementation` is the name of the code, which is imported when
the command is run, so that help and completion need no library.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from indextables.options.maintenance import MIN_MERGE_TARGET
from indextables.records import dataclass

Arguments = Mapping[str, Any]


class TableArgument(StrEnum):
    """Whether a command takes a table."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    PATH = "path"  # a path that may not be a table; it becomes the argument `path`
    NONE = "none"


class ProcessCache(StrEnum):
    """A cache that every process has."""

    SPLITS = "splits"  # open splits and indexes
    LOGS = "logs"  # snapshots and files of transaction logs


class ValueKind(StrEnum):
    """The kind of value that follows the keywords of a clause."""

    FLAG = "flag"
    NUMBER = "number"
    SIZE = "size"
    HOURS = "hours"
    NAMES = "names"
    TEXT = "text"
    CONDITION = "condition"
    VERSION = "version"
    TIMESTAMP = "timestamp"
    SECONDS = "seconds"
    PAIR = "pair"
    PAIRS = "pairs"


_SQL_PLACEHOLDERS = {
    ValueKind.FLAG: "",
    ValueKind.NUMBER: "n",
    ValueKind.SIZE: "n[M|G]",
    ValueKind.HOURS: "n {DAYS | HOURS}",
    ValueKind.NAMES: "(name, ...)",
    ValueKind.TEXT: "'text'",
    ValueKind.CONDITION: "condition",
    ValueKind.VERSION: "[AS OF] n",
    ValueKind.TIMESTAMP: "[AS OF] 'time'",
    ValueKind.SECONDS: "n {SECONDS | MINUTES}",
    ValueKind.PAIR: "'name' = 'value'",
    ValueKind.PAIRS: "('name' = 'value', ...)",
}


@dataclass(frozen=True, slots=True)
class Clause:
    """One argument of a command besides its table.

    Attributes:
        keywords: the keywords of the clause in SQL; clauses may be in any order.
        name: the name of the argument, which is also the parameter in Python.
        kind: the kind of its value.
        help: one line for the command line; empty for a clause that is refused.
        flag: the flag of the command line; by default `--` and the name.
        placeholder: the placeholder of the value in the syntax of SQL; by default that of the kind.
        minimum: the smallest number or size.
        required: whether the command needs it.
        refusal: why a clause of IndexTables for Scala or Delta is not accepted; it exists in SQL only.
        synonym: the keywords of the clause in the SQL of Delta.
    """

    keywords: str
    name: str
    kind: ValueKind
    help: str = ""
    flag: str = ""
    placeholder: str = ""
    minimum: int = 0
    required: bool = False
    refusal: str = ""
    synonym: str = ""

    @property
    def syntax(self) -> str:
        """The clause for the reference page, without brackets."""
        keywords = f"{{{self.keywords} | {self.synonym}}}" if self.synonym else self.keywords
        return f"{keywords} {self.placeholder or _SQL_PLACEHOLDERS[self.kind]}".strip()

    @property
    def option(self) -> str:
        """The flag of the command line."""
        return self.flag or "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        openings: the keywords that begin the statement; the first one is the preferred form.
        program: the words after `indextables` on the command line.
        python: the equivalent method of `Table` or function of `indextables`.
        implementation: `module.NAME` of the `Implementation`, in this package.
        help: what it does, in one sentence.
        details: a paragraph and examples for `--help`.
        table: whether it takes a table.
        before_table: a keyword before the table in SQL.
        clauses: its other arguments.
        one_of: the names of arguments of which exactly one must be given.
        opening_argument: the argument whose value is the last keyword of the opening.
        clauses_first: whether clauses are before the table in SQL.
        empties: the cache that the command empties; in Spark it is emptied in all planner processes.
        lists_settings: whether the result has the settings of Spark and of Hadoop.
    """

    openings: tuple[str, ...]
    program: str
    python: str
    implementation: str
    help: str
    details: str = ""
    table: TableArgument = TableArgument.REQUIRED
    before_table: str = ""
    clauses: tuple[Clause, ...] = ()
    one_of: tuple[str, ...] = ()
    opening_argument: str = ""
    clauses_first: bool = False
    empties: ProcessCache | None = None
    lists_settings: bool = False

    @property
    def syntax(self) -> str:
        """The statement for the reference page."""
        return " ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        verbs = " | ".join(self.openings)
        yield f"{{{verbs}}}" if len(self.openings) > 1 else verbs
        argument = "'path'" if self.table is TableArgument.PATH else "table"
        table = f"{self.before_table} {argument}".strip()
        if self.clauses_first:
            yield from self._clause_parts()
        if self.table is TableArgument.OPTIONAL:
            yield f"[{table}]"
        elif self.table is not TableArgument.NONE:
            yield table
        if not self.clauses_first:
            yield from self._clause_parts()

    def _clause_parts(self) -> Iterator[str]:
        if self.one_of:
            yield "{" + " | ".join(c.syntax for c in self.clauses if c.name in self.one_of) + "}"
        for clause in self.clauses:
            if clause.name not in self.one_of and not clause.refusal:
                yield clause.syntax if clause.required else f"[{clause.syntax}]"


_PARTITIONS = Clause(
    "WHERE", "where", ValueKind.CONDITION, "a condition on partition columns: only their splits"
)
_DRY_RUN = Clause("DRY RUN", "dry_run", ValueKind.FLAG, "only report what would be deleted")

_MAINTENANCE = (
    Command(
        openings=("MERGE SPLITS", "OPTIMIZE"),
        program="merge",
        python="Table.merge",
        implementation="maintenance.MERGE",
        help="Merge small splits into large ones, partition by partition.",
        details="""\
No row changes, and readers and writers need not stop. Splits that have reached 45% of the target size are
not merged (-o merge.skipSplitThreshold=0.45).

examples:
  indextables merge logs --target-size 1G
  indextables merge logs --where "day >= DATE '2026-05-01'" --max-dest-splits 20""",
        clauses=(
            _PARTITIONS,
            Clause(
                "TARGET SIZE",
                "target_size",
                ValueKind.SIZE,
                "the size a merged split should reach (default 5G)",
                minimum=MIN_MERGE_TARGET,
            ),
            Clause(
                "MAX DEST SPLITS",
                "max_new_splits",
                ValueKind.NUMBER,
                "the maximum number of merged splits",
                flag="--max-dest-splits",
                minimum=1,
            ),
            Clause(
                "MAX SOURCE SPLITS PER MERGE",
                "max_sources",
                ValueKind.NUMBER,
                "the maximum number of splits merged into one (default 1000)",
                flag="--max-source-splits",
                minimum=2,
            ),
            Clause(
                "PRECOMMIT",
                "precommit",
                ValueKind.FLAG,
                refusal="PRECOMMIT had no effect in IndexTables for Scala, and is not accepted; leave it out",
            ),
            Clause(
                "ZORDER BY",
                "zorder",
                ValueKind.NAMES,
                refusal="splits are searched by their indexes, rows are not sorted; leave ZORDER BY out",
            ),
        ),
    ),
    Command(
        openings=("PURGE INDEXTABLE", "VACUUM"),
        program="purge",
        python="Table.purge",
        implementation="maintenance.PURGE",
        help="Delete files that no version refers to, and log files whose retention is over.",
        details="""\
Files of versions that can still be read are never deleted. A retention below 24 hours is refused: a running
write has uploaded splits that no version refers to yet.

examples:
  indextables purge logs --dry-run
  indextables purge logs --older-than 2d --log-retention 4w""",
        clauses=(
            Clause(
                "OLDER THAN",
                "older_than",
                ValueKind.HOURS,
                "delete only files older than this, such as 7d (default 7d, at least 24h)",
                synonym="RETAIN",
            ),
            Clause(
                "TRANSACTION LOG RETENTION",
                "log_retention",
                ValueKind.HOURS,
                "how long earlier versions can be read, such as 4w (default 30d)",
            ),
            _DRY_RUN,
        ),
    ),
    Command(
        openings=("CHECKPOINT INDEXTABLES", "COMPACT INDEXTABLES"),
        program="checkpoint",
        python="Table.checkpoint",
        implementation="maintenance.CHECKPOINT",
        help="Write a checkpoint of the log now; a table of an older protocol is upgraded.",
    ),
    Command(
        openings=("TRUNCATE INDEXTABLES TIME TRAVEL",),
        program="truncate",
        python="Table.truncate",
        implementation="maintenance.TRUNCATE",
        help="Delete all versions before the newest one; this cannot be undone.",
        clauses=(_DRY_RUN,),
    ),
    Command(
        openings=("DROP INDEXTABLES PARTITIONS FROM",),
        program="drop",
        python="Table.drop_partitions",
        implementation="maintenance.DROP_PARTITIONS",
        help="Remove whole partitions from a table.",
        clauses=(
            Clause("WHERE", "where", ValueKind.CONDITION, "a condition on partition columns", required=True),
        ),
    ),
    Command(
        openings=("RESTORE INDEXTABLES", "RESTORE TABLE", "RESTORE"),
        program="restore",
        python="Table.restore",
        implementation="maintenance.RESTORE",
        help="Commit the content of an earlier version as the newest one; no history is lost.",
        clauses=(
            Clause("TO VERSION", "version", ValueKind.VERSION, "the version to restore", flag="--to-version"),
            Clause(
                "TO TIMESTAMP",
                "timestamp",
                ValueKind.TIMESTAMP,
                "the newest version at a time such as 2026-05-01T12:00; without a zone it is UTC",
                flag="--to-timestamp",
            ),
        ),
        one_of=("version", "timestamp"),
    ),
    Command(
        openings=("CONVERT INDEXTABLES",),
        program="convert",
        python="Table.convert",
        implementation="maintenance.CONVERT",
        help="Convert the splits of IndexTables for Scala into Parquet splits, in place.",
        details="""\
No row changes, and earlier versions can still be read. A conversion that was interrupted continues when it
is run again. IndexTables for Scala cannot open the table any more: stop its writers first.

examples:
  indextables convert logs --where "day >= DATE '2026-05-01'"
  indextables convert logs --dry-run""",
        clauses=(
            _PARTITIONS,
            Clause("DRY RUN", "dry_run", ValueKind.FLAG, "only report what would be converted"),
        ),
    ),
    Command(
        openings=("REPAIR INDEXFILES TRANSACTION LOG",),
        program="repair",
        python="repair",
        implementation="maintenance.REPAIR",
        help="Write a new transaction log, from a readable one or from the splits.",
        details="""\
Without --at the log is lost: it is rebuilt from the splits, in its place.
With --at, PATH is the log folder (.../_transaction_log) of a table. Its readable part is
written to the given folder, which must be absent or empty and end in _transaction_log. Missing splits are
skipped.""",
        table=TableArgument.PATH,
        clauses=(
            Clause("AT LOCATION", "at", ValueKind.TEXT, "the log folder to write", placeholder="'path'"),
        ),
    ),
)

_DESCRIBE = (
    Command(
        openings=("DESCRIBE INDEXTABLES STATE",),
        program="describe state",
        python="Table.state",
        implementation="describe.STATE",
        help="Size and shape of the newest checkpoint, and whether it should be compacted.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES HISTORY", "DESCRIBE HISTORY"),
        program="history",
        python="Table.history",
        implementation="describe.HISTORY",
        help="List the commits of a table, the newest first.",
        clauses=(Clause("LIMIT", "limit", ValueKind.NUMBER, "the maximum number of commits", minimum=1),),
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES COMPONENT SIZES",),
        program="describe components",
        python="Table.components",
        implementation="describe.COMPONENTS",
        help="The parts of every split by kind and column, with their sizes.",
        clauses=(_PARTITIONS,),
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES DATA SKIPPING STATS",),
        program="describe skipping",
        python="Table.data_skipping",
        implementation="describe.SKIPPING",
        help="For each column: the number of splits with statistics, and the minimum and maximum.",
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES TRANSACTION LOG",),
        program="describe log",
        python="Table.log_actions",
        implementation="describe.LOG",
        help="Every action of the newest checkpoint and of the versions after it.",
        clauses=(
            Clause(
                "INCLUDE ALL",
                "include_all",
                ValueKind.FLAG,
                "for log: the actions of every version file instead",
                flag="--all",
            ),
        ),
    ),
)

_PREWARM = (
    Command(
        openings=("PREWARM INDEXTABLES CACHE",),
        program="prewarm",
        python="Table.prewarm",
        implementation="caches.PREWARM",
        help="Load indexes into the local cache before the first search.",
        details="""\
example, in the background:
  indextables prewarm logs --fields message --async
  indextables jobs prewarm
  indextables wait""",
        clauses=(
            Clause(
                "FOR SEGMENTS",
                "segments",
                ValueKind.NAMES,
                "TERM, POSTINGS, POSITIONS, FASTFIELD, FIELDNORM, STORE (default TERM,POSTINGS)",
            ),
            Clause("ON FIELDS", "fields", ValueKind.NAMES, "only these columns"),
            Clause(
                "WITH PERWORKER PARALLELISM OF",
                "parallelism",
                ValueKind.NUMBER,
                "the number of splits that are loaded at once (default 2)",
                minimum=1,
            ),
            _PARTITIONS,
            Clause("ASYNC MODE", "async", ValueKind.FLAG, "run in the background and return at once"),
        ),
    ),
    Command(
        openings=("WAIT FOR INDEXTABLES PREWARM JOBS",),
        program="wait",
        python="wait_for_prewarm",
        implementation="caches.WAIT",
        help="Wait until prewarm jobs of this machine have ended.",
        table=TableArgument.OPTIONAL,
        clauses=(
            Clause("JOB", "job", ValueKind.TEXT, "only the job with this id", placeholder="'id'"),
            Clause(
                "TIMEOUT",
                "timeout",
                ValueKind.NUMBER,
                "the most seconds to wait (default 3600)",
                placeholder="seconds",
                minimum=1,
            ),
        ),
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES PREWARM JOBS",),
        program="jobs prewarm",
        python="prewarm_jobs",
        implementation="caches.PREWARM_JOBS",
        help="List the prewarm jobs of this machine, running and recently ended.",
        table=TableArgument.NONE,
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES MERGE JOBS",),
        program="jobs merge",
        python="merge_jobs",
        implementation="caches.MERGE_JOBS",
        help="List the merge jobs of this machine, running and recently ended.",
        table=TableArgument.NONE,
    ),
)

_CACHES = (
    Command(
        openings=("DESCRIBE INDEXTABLES DISK CACHE",),
        program="cache show",
        python="disk_cache",
        implementation="caches.DISK_CACHE",
        help="Show the usage of the local index cache.",
        table=TableArgument.NONE,
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES STORAGE STATS",),
        program="storage",
        python="storage_read",
        implementation="caches.STORAGE",
        help="Show the bytes and requests that processes have read from storage since they started.",
        table=TableArgument.NONE,
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES ENVIRONMENT",),
        program="environment",
        python="environment",
        implementation="caches.ENVIRONMENT",
        help="Show options, environment variables, libraries and processes; secrets are masked.",
        table=TableArgument.NONE,
        lists_settings=True,
    ),
    Command(
        openings=("FLUSH INDEXTABLES SEARCHER CACHE",),
        program="cache close",
        python="flush_searchers",
        implementation="caches.FLUSH_SEARCHERS",
        help="Close all open splits and indexes of processes.",
        table=TableArgument.NONE,
        empties=ProcessCache.SPLITS,
    ),
    Command(
        openings=("FLUSH INDEXTABLES DISK CACHE",),
        program="cache flush",
        python="flush_disk_cache",
        implementation="caches.FLUSH_DISK_CACHE",
        help="Delete cached indexes that no process uses now.",
        table=TableArgument.NONE,
        empties=ProcessCache.SPLITS,
    ),
    Command(
        openings=("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE",),
        program="cache invalidate",
        python="invalidate_log_cache",
        implementation="caches.INVALIDATE",
        help="Drop the cached transaction logs of this process.",
        table=TableArgument.OPTIONAL,
        before_table="FOR",
        empties=ProcessCache.LOGS,
    ),
)

_FIELDS_REFUSAL = (
    "the options indexing.fastfields and indexing.nonfastfields select fast fields, so this "
    "clause is not accepted; leave it out"
)
_COMPANION = (
    Command(
        openings=(
            "BUILD INDEXTABLES COMPANION FOR PARQUET",
            "BUILD INDEXTABLES COMPANION FOR DELTA",
            "BUILD INDEXTABLES COMPANION FOR ICEBERG",
        ),
        program="companion",
        python="companion",
        implementation="companion.BUILD",
        help="Build an index of a Delta, Iceberg or Parquet table, or sync it with that table.",
        details="""\
No rows are copied: the index refers to the files of the table at PATH, whose format is detected. Only new
and changed files are indexed.

examples:
  indextables companion s3://lake/logs --at s3://indexes/logs --modes message=text
  indextables companion s3://lake/logs --at s3://indexes/logs
  indextables companion s3://lake/logs --at s3://indexes/logs --every 30s""",
        table=TableArgument.PATH,
        clauses=(
            Clause(
                "AT LOCATION",
                "at",
                ValueKind.TEXT,
                "the index's location",
                placeholder="'path'",
                required=True,
            ),
            Clause("INCLUDE COLUMNS", "include", ValueKind.NAMES, "the columns to index (default all)"),
            Clause("EXCLUDE COLUMNS", "exclude", ValueKind.NAMES, "columns not to index"),
            Clause(
                "INDEXING MODES",
                "modes",
                ValueKind.PAIRS,
                "how columns are indexed: text, string, exact_only, json, ip",
                placeholder="('column':'mode', ...)",
            ),
            Clause(
                "WHERE", "where", ValueKind.CONDITION, "a condition on partition columns: only their files"
            ),
            Clause(
                "TARGET INPUT SIZE",
                "target_size",
                ValueKind.SIZE,
                "the size of source files that become one split (default 2G)",
                minimum=1,
            ),
            Clause(
                "WRITER HEAP SIZE",
                "heap_size",
                ValueKind.SIZE,
                "the memory for building an index (default 128M)",
                minimum=16 << 20,
            ),
            Clause(
                "FROM VERSION", "version", ValueKind.NUMBER, "the version or snapshot of the source to index"
            ),
            Clause(
                "FROM SNAPSHOT", "snapshot", ValueKind.NUMBER, "the snapshot of an Iceberg table to index"
            ),
            Clause(
                "CATALOG",
                "catalog",
                ValueKind.TEXT,
                "the Iceberg catalog in which the source has its name",
                placeholder="'name'",
            ),
            Clause(
                "TYPE",
                "catalog_type",
                ValueKind.TEXT,
                "the type of the catalog: rest, hive, glue, dynamodb, sql",
                placeholder="'type'",
            ),
            Clause(
                "WAREHOUSE", "warehouse", ValueKind.TEXT, "the warehouse of the catalog", placeholder="'name'"
            ),
            Clause(
                "SCHEMA SOURCE",
                "schema_file",
                ValueKind.TEXT,
                "folders: a file whose columns are the table's",
                placeholder="'path'",
            ),
            Clause("MERGE SCHEMA", "merge_schema", ValueKind.FLAG, "folders: merge the schemas of all files"),
            Clause(
                "TIME ZONE",
                "time_zone",
                ValueKind.TEXT,
                "the zone of partition values without one (default Spark's session zone, else UTC)",
            ),
            Clause(
                "PARTITION TYPES",
                "partition_types",
                ValueKind.PAIRS,
                "folders: types of partition columns that are not inferred",
                placeholder="('column':'type', ...)",
            ),
            Clause(
                "RELOCATE",
                "relocate",
                ValueKind.PAIRS,
                "where files are now, by prefixes of the paths that the source recorded",
                placeholder="('old'='new', ...)",
            ),
            Clause(
                "ALLOWED LOCATIONS",
                "allowed_locations",
                ValueKind.NAMES,
                "other locations that recorded paths may lead to",
                placeholder="('location', ...)",
            ),
            Clause(
                "TABLE ROOTS",
                "roots",
                ValueKind.PAIRS,
                "other places of the source's files, by name",
            ),
            Clause("INVALIDATE ALL PARTITIONS", "rebuild", ValueKind.FLAG, "index all files again"),
            Clause("DRY RUN", "dry_run", ValueKind.FLAG, "only report what would be done"),
            Clause(
                "WITH STREAMING POLL INTERVAL",
                "every",
                ValueKind.SECONDS,
                "sync again after this time, such as 30s or 5m, until interrupted",
            ),
            Clause("FASTFIELDS MODE", "fast_fields", ValueKind.FLAG, refusal=_FIELDS_REFUSAL),
            Clause("HASHED FASTFIELDS", "hashed_fields", ValueKind.FLAG, refusal=_FIELDS_REFUSAL),
        ),
        opening_argument="format",
    ),
    Command(
        openings=("SET INDEXTABLES TABLE",),
        program="root set",
        python="Table.set_root",
        implementation="companion.SET_ROOT",
        help="Add a table root: another place with the files of a companion index's source.",
        before_table="AT",
        clauses=(
            Clause(
                "ROOT",
                "root",
                ValueKind.PAIR,
                "for set: the name and the location of a root",
                placeholder="'name' = 'path'",
                required=True,
            ),
        ),
        clauses_first=True,
    ),
    Command(
        openings=("UNSET INDEXTABLES TABLE",),
        program="root unset",
        python="Table.unset_root",
        implementation="companion.UNSET_ROOT",
        help="Remove a table root of a companion index's source.",
        before_table="AT",
        clauses=(
            Clause(
                "ROOT",
                "name",
                ValueKind.TEXT,
                "for unset: the name of the root",
                placeholder="'name'",
                required=True,
            ),
        ),
        clauses_first=True,
    ),
    Command(
        openings=("DESCRIBE INDEXTABLES TABLE ROOTS",),
        program="root list",
        python="Table.roots",
        implementation="companion.ROOTS",
        help="List the table roots: the places with the files of a companion index's source.",
        before_table="AT",
    ),
)

COMMANDS: tuple[Command, ...] = (*_MAINTENANCE, *_COMPANION, *_DESCRIBE, *_PREWARM, *_CACHES)
