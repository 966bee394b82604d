"""The table that a request is about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indextables.errors import OptionError, StoreError
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import Store, open_store
from indextables.version import ENGINE

_PATH = "path"


@dataclass(frozen=True, slots=True)
class Addressed:
    """A table's place, and the options that came with the request."""

    store: Store
    options: Options

    @property
    def log(self) -> TransactionLog:
        """Its log."""
        return TransactionLog(self.store, self.options, engine=ENGINE)


def addressed(request: Mapping[str, Any]) -> Addressed:
    """The table that the request's options name: `path`, and options of ours."""
    given = dict(request["options"])
    path = given.pop(_PATH, None)
    if not path:
        raise OptionError("no path is given; name the table's folder in load(path), save(path) or LOCATION")
    if path.lower().startswith("memory:"):
        raise StoreError(f"{path} is the memory of one process, but Spark has many; use another store")
    options = Options.parse(given)
    return Addressed(open_store(path, options), options)
