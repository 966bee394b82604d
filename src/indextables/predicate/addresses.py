"""IP addresses: parsing addresses and blocks, and conditions that compare columns of addresses.

A column with the field type `ip` compares as addresses, in every notation: `client = '10.0.0.0/24'` is true
for the addresses of the block, `client < '10.0.0.30'` for the addresses before it. IPv4 addresses are the
IPv6 addresses `::ffff:a.b.c.d`, so all addresses have one order.
"""

import ipaddress
from collections.abc import Collection, Sequence

import pyarrow as pa

from indextables.errors import PredicateError, QuerySyntaxError
from indextables.predicate.query_language import to_text
from indextables.predicate.traversal import map_leaves
from indextables.predicate.tree import (
    Always,
    And,
    Column,
    Compare,
    In,
    InSet,
    IsNull,
    Op,
    Or,
    Predicate,
    Range,
    Search,
    SearchKind,
)
from indextables.records import dataclass

LAST_ADDRESS = (1 << 128) - 1
_V4_START = 0xFFFF_0000_0000
_EQUAL = (Op.EQ, Op.NULL_SAFE)


# --- addresses and blocks -----------------------------------------------------------------------------


def address_block(text: str) -> tuple[int, int]:
    """The first and last address (as IPv6, v4 mapped) of an address, a CIDR block or `10.1.*.*`.

    >>> [hex(n) for n in address_block("10.1.*.*")]
    ['0xffff0a010000', '0xffff0a01ffff']
    """
    try:
        if "*" in text:
            return _octets(text)
        if "/" in text:
            network = ipaddress.ip_network(text, strict=False)
            return _as_number(network.network_address), _as_number(network.broadcast_address)
        one = _as_number(ipaddress.ip_address(text))
    except ValueError:
        raise QuerySyntaxError(
            f"'{text}' is not an IP address, a block such as 10.0.0.0/8 or 2001:db8::/32, or an IPv4 "
            "address whose last numbers are *; quote IPv6 addresses"
        ) from None
    return one, one


def address_range(leaf: Range) -> tuple[int, int]:
    """The first and last address of a range; a block as bound is included or excluded as a whole."""
    low, high = 0, LAST_ADDRESS
    if leaf.lower is not None:
        first, last = address_block(leaf.lower)
        low = first if leaf.lower_inclusive else last + 1
    if leaf.upper is not None:
        first, last = address_block(leaf.upper)
        high = last if leaf.upper_inclusive else first - 1
    return low, high


def merge_blocks(blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Blocks as disjoint ranges in ascending order.

    >>> merge_blocks([(8, 9), (1, 3), (2, 7), (12, 12)])
    [(1, 9), (12, 12)]
    """
    merged: list[tuple[int, int]] = []
    for low, high in sorted(blocks):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        elif low <= high:
            merged.append((low, high))
    return merged


def _octets(text: str) -> tuple[int, int]:
    octets = text.split(".")
    first = octets.index("*")
    if any(octet != "*" for octet in octets[first:]) or not 1 <= len(octets) <= 4 or first == 0:
        raise ValueError(text)
    low = ipaddress.ip_address(".".join([*octets[:first], *["0"] * (4 - first)]))
    high = ipaddress.ip_address(".".join([*octets[:first], *["255"] * (4 - first)]))
    return _as_number(low), _as_number(high)


def _as_number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    if isinstance(address, ipaddress.IPv4Address):
        return int(address) + _V4_START
    if address.scope_id is not None:  # zones of addresses are local to a machine; the index has none
        raise ValueError(address)
    return int(address)


# --- conditions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddressComparison:
    """A comparison of a column of addresses with literals: true if one of the two parts is.

    Attributes:
        query: a query of the column, which finds the addresses; None if no literal is an address.
        texts: literals that are not addresses; they are compared as texts with values that are not addresses.
    """

    query: str | None
    texts: tuple[str, ...] = ()


def address_comparison(column: str, op: Op, literals: Sequence[str]) -> AddressComparison:
    """Convert a comparison of a column of addresses with literals.

    Args:
        column: the name of the column, for errors.
        op: the comparison; several literals only with `=`, of which one must match.
        literals: addresses, CIDR blocks, IPv4 addresses whose last numbers are `*`, or other texts.

    Raises:
        PredicateError: an inequality compares with a text that is not an address.
    """
    texts = tuple(text for text in literals if not _is_address(text))
    addresses = tuple(text for text in literals if _is_address(text))
    if op in _EQUAL:
        return AddressComparison(to_text(InSet(addresses)) if addresses else None, texts)
    if texts:
        raise PredicateError(
            f"'{column}' is a column of addresses, and '{texts[0]}' is neither an IP address nor a block "
            f"such as 10.0.0.0/8, so '{column} {op.value}' has no meaning; compare with an address"
        )
    inclusive = op in (Op.LE, Op.GE)
    lower, upper = (literals[0], None) if op in (Op.GT, Op.GE) else (None, literals[0])
    return AddressComparison(
        to_text(Range(lower, upper, lower_inclusive=inclusive, upper_inclusive=inclusive))
    )


def compare_addresses(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """The condition with the comparisons of columns of addresses replaced by searches of these columns.

    Args:
        predicate: the condition.
        columns: the names of the columns of addresses, in lower case.

    Raises:
        PredicateError: an inequality compares with a text that is not an address.
    """
    return map_leaves(predicate, lambda leaf: _compare_leaf(leaf, columns)) if columns else predicate


def _compare_leaf(leaf: Predicate, columns: Collection[str]) -> Predicate:
    match leaf:
        case Compare(op=op, column=column, value=value) if _is_text(column, [value], columns):
            if not value.is_valid:
                return leaf
            meaning = address_comparison(column.name, op, [value.as_py()])
            others: list[pa.Scalar] = [pa.scalar(text) for text in meaning.texts]
        case In(column=column, values=values) if _is_text(column, values, columns):
            op = Op.EQ
            meaning = address_comparison(column.name, op, [v.as_py() for v in values if v.is_valid])
            nulls = [pa.scalar(None, pa.string())] if any(not v.is_valid for v in values) else []
            others = [pa.scalar(text) for text in meaning.texts] + nulls
        case _:
            return leaf
    if meaning.query is None:
        return leaf
    search = Search(SearchKind.INDEXQUERY, column, meaning.query)
    if op is Op.NULL_SAFE:
        return search
    # A search is false for null, a comparison is unknown.
    rest: Predicate = In(column, others) if others else And((IsNull(column), Always(None)))
    return Or((search, rest))


def _is_text(column: Column, values: Sequence[pa.Scalar], columns: Collection[str]) -> bool:
    """Whether texts are compared with a column of addresses."""
    return (
        len(column.path) == 1
        and column.path[0].lower() in columns
        and all(not value.is_valid or isinstance(value.as_py(), str) for value in values)
    )


def _is_address(text: str) -> bool:
    try:
        address_block(text)
    except QuerySyntaxError:
        return False
    return True
