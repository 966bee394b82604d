"""`records.dataclass` behaves like the one of Python."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from indextables import records

Decorator = Callable[..., Callable[[type], Any]]


def build(decorator: Any, **settings: bool) -> Any:
    @decorator(frozen=True, **settings)
    class Record:
        """A record."""

        name: str
        size: int = 3
        tags: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="hidden", repr=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

    Record.__qualname__ = "Record"
    return Record


SETTINGS: list[dict[str, bool]] = [
    {"slots": True},
    {"slots": False},
    {"slots": True, "kw_only": True},
    {"slots": True, "eq": False},
    {"slots": True, "repr": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_record_is_like_one_of_python(settings: dict[str, bool]) -> None:
    ours, theirs = build(records.dataclass, **settings), build(dataclasses.dataclass, **settings)
    assert ours.__match_args__ == theirs.__match_args__
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    outcomes = []
    for cls in (ours, theirs):
        record = cls(name="a")
        outcome: list[object] = [record == cls(name="a"), record == cls(name="b"), record != 5]
        outcome += [record == cls(name="a", tags=["x"]), record == cls(name="a", secret="x")]
        outcome += [hash(record) == hash(cls(name="a")), dataclasses.asdict(record)]
        outcome += [dataclasses.replace(record, size=8).size, dataclasses.astuple(copy.deepcopy(record))]
        outcome += [repr(record).split(" at ")[0].split("<locals>.")[-1], hasattr(record, "__dict__")]
        outcome.append(cls(name="a").tags is not cls(name="a").tags)
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][7] == 8


@pytest.mark.parametrize("arguments", [(), ("a", 1, [], "s", "too many"), ("a", -1)], ids=str)
def test_wrong_arguments_are_refused_as_by_python(arguments: tuple[object, ...]) -> None:
    raised = []
    for decorator in (records.dataclass, dataclasses.dataclass):
        with pytest.raises((TypeError, ValueError)) as error:
            build(decorator, slots=True)(*arguments)
        raised.append(type(error.value))
    assert raised[0] is raised[1]


@pytest.mark.parametrize("slots", [True, False])
def test_a_field_can_be_neither_assigned_nor_deleted(slots: bool) -> None:
    record = build(records.dataclass, slots=slots)("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'size'"):
        record.size = 4
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'size'"):
        del record.size
    assert record.size == 3


@records.dataclass(frozen=True, slots=True)
class Point:
    """A point."""

    x: int
    y: int = 0


@records.dataclass(frozen=True, slots=True)
class Named(Point):
    """A point with a name, whose own methods stay."""

    name: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class Weighted(Point):
    """A class with an attribute that is no field."""

    def __init__(self, x: int, weight: int) -> None:
        super().__init__(x)
        self.weight = weight


def test_records_are_pickled_matched_and_inherited() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
    assert pickle.loads(pickle.dumps(Named(1, 2, "n"))).y == 2
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
    assert Named(1, 2, "n") == Named(3, 4, "n")
    assert {Named(1, 2, "n"), Named(3, 4, "n")} == {Named(5, 6, "n")}
    assert repr(Named(1, name="n")) == "n"
    assert Weighted(1, 5).weight == 5
    with pytest.raises(FrozenInstanceError):
        Weighted(1, 5).x = 3


def test_a_default_of_a_field_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot have a default"):

        @records.dataclass(frozen=True)
        class _Wrong:
            """A record."""

            x: int = field(init=False, default=1)
