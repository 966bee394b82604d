"""Options: declared once, checked at the door, never silently ignored."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.errors import OptionError
from indextables.options import (
    Alias,
    FieldOption,
    IgnoredOption,
    Option,
    Options,
    all_declarations,
    cloud,
    declare,
    reading,
    writing,
)
from indextables.options import log as opt
from indextables.options import writing as index_options

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
SOURCES = Path(__file__).parents[2] / "src"


def test_a_key_is_read_with_or_without_prefix_and_in_any_case() -> None:
    for key in ("checkpoint.interval", "spark.indextables.checkpoint.interval", "CHECKPOINT.Interval"):
        assert Options.parse({key: "7"}).get(opt.CHECKPOINT_INTERVAL) == 7


def test_values_may_have_their_own_types() -> None:
    options = Options.parse({"checkpoint.enabled": False, "dataSkippingStatsColumns": ["a", "b"]})
    assert options.get(opt.CHECKPOINT_ENABLED) is False
    assert options.get(opt.STATS_COLUMNS) == ("a", "b")


def test_what_is_not_given_has_its_default() -> None:
    assert Options().get(opt.CHECKPOINT_INTERVAL) == 10
    assert not Options().is_set(opt.CHECKPOINT_INTERVAL)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("chekpoint.interval", 5, "did you mean 'checkpoint.interval'"),
        ("spark.indextables.state.compresion", "zstd", "did you mean 'state.compression'"),
        ("nothing.like.this", 1, r"unknown option 'nothing.like.this'; docs/options.md"),
        ("checkpoint.interval", "often", "a whole number of at least 0"),
        ("checkpoint.interval", -1, "a whole number of at least 0"),
        ("state.compression", "lzma", "one of zstd, snappy, none"),
        ("state.compressionLevel", 23, "from 1 to 22"),
        ("checkpoint.enabled", "maybe", "true or false"),
        ("transaction.cache.fileList.maxBytes", "much", "a size such as 64M"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(key: str, value: object, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Options.parse({key: value})


def test_an_option_given_twice_differently_is_refused() -> None:
    with pytest.raises(OptionError, match="given twice"):
        Options.parse({"checkpoint.interval": 1, "spark.indextables.checkpoint.interval": 2})


def test_the_closer_options_win() -> None:
    near, far = (
        Options.parse({"checkpoint.interval": 1}),
        Options.parse({"checkpoint.interval": 2, "state.format": "json"}),
    )
    both = near.over(far)
    assert (both.get(opt.CHECKPOINT_INTERVAL), both.get(opt.STATE_FORMAT)) == (1, "json")


def test_secrets_show_nowhere() -> None:
    options = Options.parse({"aws.secretKey": "hush", "aws.region": "eu-central-1"})
    assert "hush" not in repr(options)
    assert options.get(cloud.AWS_SECRET_KEY) == "hush"
    assert b"hush" not in pickle.dumps(options.public())


def test_every_declaration_has_help_and_accepts_its_default() -> None:
    for declaration in all_declarations():
        if isinstance(declaration, IgnoredOption):
            assert declaration.reason
            continue
        if isinstance(declaration, Alias):
            assert declaration.target in set(all_declarations())
            continue
        assert declaration.help.endswith("."), declaration.key
        if isinstance(declaration, Option) and isinstance(declaration.default, (int, float, str)):
            text = (
                str(declaration.default).lower()
                if isinstance(declaration.default, bool)
                else str(declaration.default)
            )
            assert declaration.parse(text) == declaration.default, declaration.key


def test_every_option_is_asked_for_somewhere() -> None:
    """An option that no code reads would be accepted and ignored; one of a single value needs no reader."""
    words = {path: set(re.findall(r"[A-Z][A-Z0-9_]+", path.read_text())) for path in SOURCES.rglob("*.py")}
    for module in (SOURCES / "indextables" / "options").glob("*.py"):
        for name in re.findall(r"^([A-Z][A-Z0-9_]+) = (?:field_)?option\(", module.read_text(), re.MULTILINE):
            used = any(name in said for path, said in words.items() if path != module)
            assert used or name == "READ_MODE", f"{module.name}: nobody reads {name}"


@pytest.mark.skipif(not SEEDS.exists(), reason="the specification's texts are not at hand")
def test_every_key_of_the_specification_is_honoured_or_refused_with_a_reason() -> None:
    keys = {d.key.lower() for d in all_declarations() if not isinstance(d, FieldOption)}
    named = set()
    for page in SEEDS.glob("*.txt"):
        named |= set(re.findall(r"spark\.indextables\.([A-Za-z.]+[A-Za-z])", page.read_text()))
    named = {key.removesuffix("is") if key.endswith("Mergeis") else key for key in named}
    assert len(named) > 25
    assert {key for key in named if key.lower() not in keys} == set()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda path: it.open(path, options={"replaceWhere": "id = 1"}), r"'replaceWhere' belongs to writes .*a read"),
        (lambda path: it.open(path, options={"mergeOnWrite.enabled": True}), "belongs to writes"),
        (lambda path: it.write(path, [{"id": 2}], options={"prewarm.segments": "NONSENSE"}), r"'prewarm.segments' belongs to commands .*a write"),
        (lambda path: it.sql(f"MERGE SPLITS '{path}'", options={"replaceWhere": "id = 1"}), "has no effect on a command"),
        (lambda path: it.repair(str(path), options={"overwriteSchema": True}), "has no effect on a command"),
    ],
)  # fmt: skip
def test_an_option_is_refused_where_it_has_no_effect(tmp_path: Path, call: Any, says: str) -> None:
    it.write(tmp_path, [{"id": 1}])
    with pytest.raises(OptionError, match=says):
        call(tmp_path)
    assert it.open(tmp_path).version == 1


def test_options_that_take_effect_in_more_than_one_place_are_accepted_there(tmp_path: Path) -> None:
    both = {"cache.disk.path": str(tmp_path / "cache"), "checkpoint.interval": 3, "merge.maxPasses": 1}
    it.write(tmp_path / "t", [{"id": 1}], options=both)
    it.open(tmp_path / "t", options=both).merge()
    it.sql(f"MERGE SPLITS '{tmp_path}/t'", options=both)


# --- keys of IndexTables for Scala ------------------------------------------------------------------------

SCALA_CONFIGURATION = Path(__file__).parent / "scala_configuration.properties"


def scala_configuration() -> dict[str, str]:
    lines = SCALA_CONFIGURATION.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_a_configuration_of_the_scala_release_starts_a_session() -> None:
    configuration = scala_configuration()
    assert len(configuration) > 280
    Options.parse({f"spark.indextables.{key}": value for key, value in configuration.items()})


def test_the_options_page_lists_every_key_of_the_scala_release() -> None:
    page = (Path(__file__).parents[2] / "docs" / "options.md").read_text().lower()
    families = (
        "indexing.typemap",
        "indexing.tokenizer",
        "indexing.indexrecordoption",
        "indexing.tokenlength",
    )
    assert "`companion.parquet.<option>`" in page
    for key in scala_configuration():
        family = key.lower().rpartition(".")[0]
        if key.startswith("companion.parquet."):
            continue
        assert f"`{f'{family}.<field>' if family in families else key.lower()}`" in page, key


def test_a_key_without_effect_is_accepted_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declare, "_warned", set())
    for _ in range(3):
        assert Options.parse({"spark.indextables.merge.debug": "true"}) == Options()
    assert [record.getMessage() for record in caplog.records] == [
        "option 'merge.debug' has no effect: the result of a merge and the table's history have its metrics"
    ]


@pytest.mark.parametrize(
    ("key", "value", "option", "expected"),
    [
        ("s3.endpoint", "http://127.0.0.1:9000", cloud.AWS_ENDPOINT, "http://127.0.0.1:9000"),
        ("s3.pathStyleAccess", "false", cloud.AWS_PATH_STYLE, False),
        ("logRetention.duration", "2592000000", opt.LOG_RETENTION_HOURS, 720),
        ("logRetention.duration", "1", opt.LOG_RETENTION_HOURS, 1),
        ("checkpointRetention.duration", "7200000", opt.STATE_RETENTION_HOURS, 2),
        ("merge.tempDirectoryPath", "/scratch", index_options.TEMP_DIRECTORY, "/scratch"),
        ("write.optimizeWrite.maxSplitSize", "4G", writing.TARGET_SPLIT_SIZE, 4 << 30),
        ("read.mode", "fast", reading.READ_MODE, "fast"),
        ("indexWriter.threads", "32", index_options.INDEX_THREADS, 8),
        ("cache.disk.maxSize", "0", reading.DISK_CACHE_SIZE, None),
    ],
)
def test_a_key_with_another_name_sets_its_option(
    key: str, value: str, option: Any, expected: bool | int | str | None
) -> None:
    assert Options.parse({f"spark.indextables.{key}": value}).get(option) == expected


def test_the_own_name_of_an_option_is_stronger_than_an_alias() -> None:
    for order in (("aws.endpoint", "s3.endpoint"), ("s3.endpoint", "aws.endpoint")):
        options = Options.parse({key: f"http://{key}" for key in order})
        assert options.get(cloud.AWS_ENDPOINT) == "http://aws.endpoint"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("logRetention.duration", "a month", "a whole number of milliseconds is expected"),
        ("logRetention.duration", "-1", "a whole number of milliseconds is expected"),
        ("s3.endpoint", "http://user:secret@store", "a URL without a user"),
        ("autoSize.targetSplitSize", "much", "a size such as 64M"),
    ],
)
def test_a_wrong_value_of_an_alias_is_refused_by_its_own_key(key: str, value: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        Options.parse({key: value})
    assert f"'{key}'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_alias_is_refused_where_its_option_has_no_effect(tmp_path: Path) -> None:
    it.write(tmp_path, [{"id": 1}])
    with pytest.raises(OptionError, match=r"'autoSize.enabled' belongs to writes"):
        it.open(tmp_path, options={"autoSize.enabled": "true"})
