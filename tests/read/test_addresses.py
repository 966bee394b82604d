"""Columns of addresses compare as addresses, in every notation, and never find nothing in silence."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.errors import OptionError, PredicateError, QuerySyntaxError
from indextables.predicate.addresses import address_block, merge_blocks
from indextables.table import Table

# Beside addresses: null, a text that is none, and an address with a zone, which has no place in the index.
VALUES = ["10.0.0.1", "10.0.0.9", "10.0.0.200", "192.168.1.1", "2001:DB8::1", None, "-", "fe80::1%eth0"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("addresses") / "t"
    rows = [{"id": n, "ip": value, "day": "a" if n < 4 else "b"} for n, value in enumerate(VALUES, start=1)]
    return it.write(path, rows, partition_by=["day"], options={"indexing.typemap.ip": "ip"})


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("ip = '10.0.0.0/24'", [1, 2, 3]),
        ("ip <> '10.0.0.0/24'", [4, 5, 7, 8]),
        ("NOT ip = '10.0.0.0/24'", [4, 5, 7, 8]),
        ("(ip = '10.0.0.0/24') IS NULL", [6]),
        ("ip BETWEEN '10.0.0.2' AND '10.0.0.30'", [2]),
        ("ip NOT BETWEEN '10.0.0.2' AND '10.0.0.30'", [1, 3, 4, 5, 7, 8]),
        ("ip < '10.0.0.30'", [1, 2]),
        ("'10.0.0.30' > ip", [1, 2]),
        ("ip <= '10.0.0.0/29'", [1]),
        ("ip > '10.0.0.9'", [3, 4, 5]),
        ("ip >= '2001:db8::1'", [5]),
        ("ip IN ('10.0.0.0/29', '-')", [1, 7]),
        ("ip NOT IN ('10.0.0.0/29', '-')", [2, 3, 4, 5, 8]),
        ("ip IN ('10.0.0.0/29', NULL)", [1]),
        ("ip NOT IN ('10.0.0.0/29', NULL)", []),
        ("ip = '2001:db8::1'", [5]),
        ("ip = '::ffff:10.0.0.9'", [2]),
        ("ip = '10.0.*.*'", [1, 2, 3]),
        ("ip = '0.0.0.0/0'", [1, 2, 3, 4]),
        ("ip = '::/0'", [1, 2, 3, 4, 5]),
        ("ip = '-'", [7]),
        ("ip = 'fe80::1%eth0'", [8]),
        ("ip <=> '10.0.0.9'", [2]),
        ("NOT ip <=> '10.0.0.9'", [1, 3, 4, 5, 6, 7, 8]),
        ("ip <=> NULL", [6]),
        ("ip LIKE '10.%'", [1, 2, 3]),
        ("ip IS NULL OR ip = '192.168.0.0/16'", [4, 6]),
        ("day = 'a' AND ip > '10.0.0.1'", [2, 3]),
    ],
)
def test_a_comparison_is_one_of_addresses(table: Table, condition: str, ids: Any) -> None:
    assert sorted(table.scan(["id"], condition)["id"].to_pylist()) == ids
    assert table.count(condition) == len(ids)
    groups = table.aggregate({"n": "count(*)"}, where=condition)
    assert groups["n"].to_pylist() == [len(ids)]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("ip = '10.0.0.0/24'", [1, 2, 3]),
        ("ip <> '10.0.0.0/24'", [4, 5, 7, 8]),
        ("ip < '10.0.0.30'", [1, 2]),
        ("ip IN ('10.0.0.0/28', '192.168.0.0/16')", [1, 2, 4]),
        ("ip NOT IN ('10.0.0.0/28')", [3, 4, 5, 7, 8]),
    ],
)
def test_changes_and_followed_rows_compare_addresses(table: Table, condition: str, ids: list[int]) -> None:
    assert sorted(table.changes(-1, where=condition)["id"].to_pylist()) == ids
    followed = list(table.follow(where=condition, since=-1, timeout=0))
    assert sorted(id_ for rows in followed for id_ in rows["id"].to_pylist()) == ids


@pytest.mark.parametrize("types", ["string,ip", "ip,text", "json,ip"])
def test_a_column_is_ip_or_other_types(tmp_path: Path, types: str) -> None:
    with pytest.raises(
        OptionError, match=f"'indexing.typemap.ip' is '{types}', but a column is either ip or"
    ):
        it.write(tmp_path / "t", [{"ip": "10.0.0.9"}], options={"indexing.typemap.ip": types})


@pytest.mark.parametrize("option", [("indexing.typemap.IP", "ip"), ("indexing.typemap.ip", "n, ip")])
def test_a_partition_column_is_not_ip(tmp_path: Path, option: Any) -> None:
    rows = [{"n": "10.0.0.1", "ip": "10.0.0.9"}]
    with pytest.raises(OptionError, match="'ip', but the table is partitioned by that column"):
        it.write(tmp_path / "t", rows, partition_by=["ip"], options=dict([option]))
    it.write(tmp_path / "t", rows, partition_by=["ip"], options={"indexing.typemap.n": "ip"})


def test_a_long_list_of_addresses_and_blocks(table: Table) -> None:
    listed = ", ".join(f"'10.0.0.{n}'" for n in range(2, 256)) + ", '2001:db8::/32'"
    assert sorted(table.scan(["id"], f"ip IN ({listed})")["id"].to_pylist()) == [2, 3, 5]


@pytest.mark.parametrize("condition", ["ip < 'abc'", "ip BETWEEN '10.0.0.1' AND 'z'", "ip >= '10.0.0.0/99'"])
def test_an_order_without_an_address_is_refused(table: Table, condition: str) -> None:
    with pytest.raises(PredicateError, match=r"'ip' is a column of addresses, and '.*' is neither"):
        table.scan(where=condition)


def test_other_columns_compare_their_texts(tmp_path: Path) -> None:
    table = it.write(tmp_path / "t", [{"ip": "10.0.0.9"}, {"ip": "10.0.0.30"}])
    assert table.count("ip < '10.0.0.30'") == 0
    assert table.count("ip = '10.0.0.0/24'") == 0


def test_a_condition_on_addresses_replaces_no_rows_by_their_texts(table: Table) -> None:
    with pytest.raises(PredicateError, match="covers only some rows"):
        it.write(
            table.url,
            [{"id": 9, "ip": "10.0.0.5", "day": "a"}],
            mode="overwrite",
            options={"replaceWhere": "ip >= '10.0.0.1' AND ip <= '10.0.0.9'"},
        )


def test_blocks_of_every_length_hold_their_addresses() -> None:
    for length in range(33):
        network = ipaddress.ip_network(f"10.1.2.3/{length}", strict=False)
        first, last = address_block(f"10.1.2.3/{length}")
        assert last - first + 1 == network.num_addresses
        assert first == address_block(str(network.network_address))[0]
    assert merge_blocks([]) == []


def test_a_malformed_query_is_refused_with_the_name_of_its_field(table: Table) -> None:
    with pytest.raises(QuerySyntaxError, match="the query of 'ip': "):
        table.scan(where="ip INDEXQUERY 'a AND ('")
