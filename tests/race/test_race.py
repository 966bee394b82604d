"""Eight processes write one table at once: no version is lost, doubled or skipped, and states equal replay."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from indextables.log.snapshot_cache import invalidate
from indextables.options import Options
from indextables.store import Store, open_store
from tests.log_tables.build import a_log, a_table, paths_of
from tests.log_tables.model import Model, lines_of
from tests.race.writers import appends, meet, mixed
from tests.servers.fixtures import StoreUrl

PROCESSES = 8


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Eight processes of their own; all races of this module use them, since starting them costs most."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, context, initializer=meet, initargs=(barrier,)) as pool:
        yield pool


def race(
    pool: ProcessPoolExecutor, work: Any, url: str, options: dict[str, str], commits: int
) -> list[list[Any]]:
    """Run the work in all processes at once."""
    running = [pool.submit(work, url, options, who, commits) for who in range(PROCESSES)]
    return [one.result(timeout=500) for one in running]


def log_folder(url: str, options: dict[str, str]) -> Store:
    return open_store(url, Options.parse(options)).at("_transaction_log")


def versions_on(folder: Store) -> list[int]:
    names = [info.path for info in folder.list() if "/" not in info.path and info.path[:1].isdigit()]
    return sorted(int(name.removesuffix(".json")) for name in names)


def check_every_version(url: str, options: dict[str, str], step: int = 1) -> Model:
    """The snapshot at each version equals the model, whatever state it is read from."""
    folder = log_folder(url, options)
    model = Model()
    log = a_log(url, options)
    versions = versions_on(folder)
    assert versions == list(range(len(versions))), "a version is missing"
    for version in versions:
        model.apply(lines_of(folder.get(f"{version:020d}.json")))
        if version % step == 0 or version == versions[-1]:
            snapshot = log.snapshot(version=version)
            listed = snapshot.files()
            found = dict(zip(listed["path"].to_pylist(), listed["size"].to_pylist(), strict=True))
            assert found == model.live, f"version {version} differs from replay"
            assert {name: txn.version for name, txn in snapshot.txns.items()} == model.batches
    return model


def check_appends(
    pool: ProcessPoolExecutor, url: str, options: dict[str, str], commits: int, step: int = 1
) -> None:
    a_table(url, options)
    got = race(pool, appends, url, options, commits)
    invalidate()
    assert sorted(v for versions in got for v in versions) == list(range(1, PROCESSES * commits + 1))
    assert all(versions == sorted(versions) for versions in got)
    model = check_every_version(url, options, step)
    assert set(model.live) == {f"{who}-{n}.split" for who in range(PROCESSES) for n in range(commits)}
    assert model.batches == {f"writer-{who}": commits - 1 for who in range(PROCESSES)}
    states = {int(i.path[7:27]) for i in log_folder(url, options).list() if i.path.startswith("state-v")}
    assert len(states) >= PROCESSES * commits // 20, "states were written on the way"
    times = [entry.timestamp for entry in a_log(url, options).history()]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def check_mixed(
    pool: ProcessPoolExecutor, url: str, options: dict[str, str], commits: int, step: int = 1
) -> None:
    a_table(url, options)
    got = race(pool, mixed, url, options, commits)
    invalidate()
    claimed = {version: kind for versions in got for version, kind in versions}
    assert len(claimed) == sum(map(len, got)), "two writers were told of the same version"
    folder = log_folder(url, options)
    names = {"append": "WRITE", "merge": "MERGE SPLITS", "drop": "DROP PARTITIONS", "overwrite": "OVERWRITE"}
    for version in versions_on(folder)[1:]:
        info = next(
            a["commitInfo"] for a in lines_of(folder.get(f"{version:020d}.json")) if "commitInfo" in a
        )
        expected = names[claimed[version]] if version in claimed else "CHECKPOINT"
        assert info["operation"] == expected, f"version {version} was committed, but nobody was told"
    check_every_version(url, options, step)
    # From cold, from the newest state, and after all history is gone, the table is the same.
    before = paths_of(a_log(url, options).snapshot())
    a_log(url, options).checkpoint()
    a_log(url, options).truncate()
    invalidate()
    assert paths_of(a_log(url, options).snapshot()) == before


def test_appends_of_eight_processes_on_the_local_disk(
    pool: ProcessPoolExecutor, make_store_url: StoreUrl
) -> None:
    check_appends(pool, *make_store_url("local"), commits=20)


def test_mixed_commits_of_eight_processes_on_the_local_disk(
    pool: ProcessPoolExecutor, make_store_url: StoreUrl
) -> None:
    check_mixed(pool, *make_store_url("local"), commits=12)


@pytest.mark.server
@pytest.mark.parametrize("kind", ["s3", "azure", pytest.param("hdfs", marks=pytest.mark.connectors)])
def test_appends_of_eight_processes_on_an_object_store(
    pool: ProcessPoolExecutor, make_store_url: StoreUrl, kind: str
) -> None:
    check_appends(pool, *make_store_url(kind), commits=6, step=7)


@pytest.mark.server
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_mixed_commits_of_eight_processes_on_an_object_store(
    pool: ProcessPoolExecutor, make_store_url: StoreUrl, kind: str
) -> None:
    check_mixed(pool, *make_store_url(kind), commits=5, step=5)


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_four_hundred_appends_on_an_object_store(
    pool: ProcessPoolExecutor, make_store_url: StoreUrl, kind: str
) -> None:
    check_appends(pool, *make_store_url(kind), commits=50)


@pytest.mark.soak
@pytest.mark.parametrize(
    "kind", ["local", *(pytest.param(k, marks=pytest.mark.server) for k in ("s3", "azure"))]
)
def test_four_hundred_mixed_commits(pool: ProcessPoolExecutor, make_store_url: StoreUrl, kind: Any) -> None:
    check_mixed(pool, *make_store_url(kind), commits=50)
