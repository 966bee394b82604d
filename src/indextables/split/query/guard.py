"""What the index library says of damaged bytes, as errors of ours."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from indextables.errors import SplitError

P = ParamSpec("P")
T = TypeVar("T")


class NotAggregatedError(Exception):
    """More groups than the index gives, or a field that it cannot aggregate."""


class Guarded(Protocol):
    """An open index: where its split is, and how to get rid of its copy."""

    where: str

    def discard(self) -> None:
        """Forget the copy in the cache: the next search makes another."""
        ...


G = TypeVar("G", bound=Guarded)


def is_panic(error: BaseException) -> bool:
    """Whether the library gave up; that is no Exception, so that nobody catches it unknowingly."""
    return type(error).__name__ == "PanicException"


def guarded(method: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
    """A search whose errors of the library and panics become a SplitError."""

    @wraps(method)
    def search(self: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            if not isinstance(error, ValueError | TypeError) and not is_panic(error):
                raise
            self.discard()
            raise SplitError(
                f"{self.where}: its index could not be searched ({error}); its copy in the cache was "
                "removed: repeat the query"
            ) from error

    return search
