"""Options: declared once, checked at the door, never silently ignored."""

import pickle
import re
from pathlib import Path

import pytest

import indextables as it
from indextables.errors import OptionError
from indextables.options import FieldOption, Option, Options, Refused, cloud, declared
from indextables.options import log as opt

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


def test_a_refused_key_says_why() -> None:
    refused = [d for d in declared() if isinstance(d, Refused)]
    assert refused
    for declaration in refused:
        with pytest.raises(OptionError, match=re.escape(declaration.reason)):
            Options.parse({declaration.key: "1"})


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
    for declaration in declared():
        if isinstance(declaration, Refused):
            assert declaration.reason
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
    keys = {d.key.lower() for d in declared() if not isinstance(d, FieldOption)}
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
def test_an_option_is_refused_where_it_has_no_effect(tmp_path: Path, call, says: str) -> None:
    it.write(tmp_path, [{"id": 1}])
    with pytest.raises(OptionError, match=says):
        call(tmp_path)
    assert it.open(tmp_path).version == 1


def test_options_that_take_effect_in_more_than_one_place_are_accepted_there(tmp_path: Path) -> None:
    both = {"cache.disk.path": str(tmp_path / "cache"), "checkpoint.interval": 3, "merge.maxPasses": 1}
    it.write(tmp_path / "t", [{"id": 1}], options=both)
    it.open(tmp_path / "t", options=both).merge()
    it.sql(f"MERGE SPLITS '{tmp_path}/t'", options=both)
