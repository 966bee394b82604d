"""Which fields a column gets, and which options are refused."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from indextables.errors import OptionError, SplitError
from indextables.options import Options
from indextables.options.writing import TOKENIZER_NAMES
from indextables.schema.spark import to_arrow
from indextables.split.mapping import Field, Kind, Mapping, mapping_for

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("Name", pa.string()),
        ("body", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 2)),
        ("data", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.struct([("a", pa.int32())])),
        ("ok", pa.bool_()),
        ("score", pa.float32()),
        ("day", pa.date32()),
    ]
)


def mapping(partitions: tuple[str, ...] = (), **options: str) -> Mapping:
    given = {f"indexing.{key.replace('__', '.')}": value for key, value in options.items()}
    return mapping_for(SCHEMA, Options.parse(given), partitions)


def only(found: Mapping, column: str) -> Field:
    (field,) = found.fields_of(column)
    return field


def test_every_column_gets_the_field_that_holds_its_type() -> None:
    kinds = {field.column: field.kind for field in mapping().fields}
    assert kinds == {
        "id": Kind.I64,
        "Name": Kind.STRING,
        "body": Kind.STRING,
        "at": Kind.I64,
        "price": Kind.I64,
        "tags": Kind.JSON,
        "attrs": Kind.JSON,
        "ok": Kind.BOOL,
        "score": Kind.F64,
        "day": Kind.I64,
    }


def test_partition_columns_have_no_field() -> None:
    assert mapping(partitions=("DAY",)).fields_of("day") == ()


def test_a_column_can_be_exact_and_text() -> None:
    fields = mapping(typemap__body="string,text").fields_of("body")
    assert [(f.kind, f.name) for f in fields] == [
        (Kind.STRING, "s:body"),
        (Kind.TEXT, "t:body"),
    ]


def test_types_may_be_given_by_field_or_by_type_in_any_case() -> None:
    by_field = mapping(typemap__NAME="TEXT", typemap__body="text")
    assert by_field == mapping(typemap__text="body, name") == mapping(typemap__Text="Name,BODY")


def test_a_column_called_like_a_type_is_not_confused_with_it() -> None:
    schema = pa.schema([("text", pa.string()), ("ip", pa.string())])
    found = mapping_for(schema, Options.parse({"indexing.typemap.text": "json", "indexing.typemap.ip": "ip"}))
    assert [f.kind for f in found.fields] == [Kind.JSON, Kind.IP]


def test_a_key_that_can_be_read_in_two_ways_is_refused() -> None:
    schema = pa.schema([("text", pa.string()), ("json", pa.string())])
    with pytest.raises(OptionError, match="is ambiguous"):
        mapping_for(schema, Options.parse({"indexing.typemap.text": "json"}))


def test_tokenizer_record_and_length_go_to_the_text_field() -> None:
    found = mapping(
        typemap__text="body,name",
        tokenizer__body="de_stem",
        indexrecordoption__freq="body",
        tokenLength__legacy="body",
        text__indexRecordOption="basic",
        text__maxTokenLength="tantivy_max",
    )
    body, name = only(found, "body"), only(found, "Name")
    assert (body.tokenizer, body.record, body.max_token) == ("de_stem", "freq", 40)
    assert (name.tokenizer, name.record, name.max_token) == ("default", "basic", 65530)


def test_fast_fields_are_added_and_left_out() -> None:
    found = mapping(typemap__body="text", fastfields="body", nonfastfields="id,name")
    assert [(f.kind, f.fast) for f in found.fields_of("body")] == [(Kind.TEXT, False), (Kind.STRING, True)]
    assert (only(found, "id").fast, only(found, "id").indexed) == (False, True)
    assert (only(found, "name").fast, only(found, "name").indexed) == (False, True)
    assert (only(found, "at").fast, only(found, "at").indexed) == (True, False)


def test_store_only_columns_have_no_field() -> None:
    assert mapping(storeonlyfields="body,id").fields_of("body") == ()


def test_json_mode_minimal_leaves_out_fast_fields() -> None:
    assert only(mapping(), "attrs").fast
    assert not only(mapping(json__mode="minimal"), "attrs").fast
    assert only(mapping(json__mode="minimal", fastfields="attrs"), "attrs").fast


def test_a_collated_column_is_not_searched_by_its_bytes() -> None:
    text = json.dumps(
        {
            "type": "struct",
            "fields": [{"name": "c", "type": "string collate UNICODE_CI", "nullable": True, "metadata": {}}],
        }
    )
    schema = to_arrow(text)
    assert mapping_for(schema, Options()).fields == ()
    assert (
        mapping_for(schema, Options.parse({"indexing.typemap.c": "text"})).fields_of("c")[0].kind is Kind.TEXT
    )
    with pytest.raises(OptionError, match="collation"):
        mapping_for(schema, Options.parse({"indexing.typemap.c": "string"}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"typemap__nope": "text"}, "'nope', but the columns are: id, Name, body"),
        ({"typemap__text": "body,nope"}, "'nope'"),
        ({"fastfields": "nope"}, "indexing.fastfields"),
        ({"storeonlyfields": "nope"}, "columns are"),
        ({"tokenizer__nope": "raw"}, "columns are"),
        ({"typemap__id": "text"}, "does not fit the column 'id' (int64)"),
        ({"typemap__id": "json"}, "does not fit"),
        ({"typemap__attrs": "text"}, "does not fit"),
        ({"tokenizer__body": "en_stem"}, "must be indexed as text or json"),
        ({"tokenLength__id": "10"}, "must be indexed as text or json"),
        ({"fastfields": "data"}, "not indexed"),
        ({"fastfields": "huge"}, "not indexed"),
        ({"nonfastfields": "data"}, "no fast field"),
        ({"fastfields": "id", "nonfastfields": "ID"}, "exclude each other"),
        ({"storeonlyfields": "body", "typemap__body": "text"}, "exclude each other"),
        ({"typemap__body": "exact_only", "fastfields": "body"}, "holds no values"),
        ({"tokenizer__raw": "body", "tokenizer__body": "en_stem", "typemap__body": "text"}, "another value"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=r"[\s\S]*") as caught:
        mapping(**options)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("typemap.body", "texte"),
        ("tokenizer.body", "klingon"),
        ("tokenizer.body", "ngram_5_2"),
        ("tokenLength.body", "0"),
        ("tokenLength.body", "70000"),
        ("indexrecordoption.body", "offsets"),
        ("json.mode", "maximal"),
    ],
)
def test_a_malformed_value_is_refused_at_the_door(key: str, value: str) -> None:
    with pytest.raises(OptionError):
        Options.parse({f"spark.indextables.indexing.{key}": value})


def test_every_stemming_language_is_a_tokenizer() -> None:
    names = [name for name in TOKENIZER_NAMES if name.endswith("_stem")]
    assert len(names) == 18
    for name in names:
        field = only(mapping(typemap__body="text", tokenizer__body=name), "body")
        assert field.analysis.stemmer is not None
        assert field.analysis.without_stemming.stemmer is None
        assert not field.analysis.keeps_words


def test_a_field_of_an_unknown_tokenizer_is_refused_when_it_is_searched() -> None:
    field = replace(only(mapping(typemap__body="text"), "body"), tokenizer="made_later")
    with pytest.raises(SplitError, match=r"'made_later'.*newer release"):
        _ = field.analysis


def test_the_mapping_survives_its_json() -> None:
    found = mapping(typemap__body="string,text", tokenizer__body="ngram_2_4", typemap__name="string")
    text = found.to_json()
    assert Mapping.from_json(text) == found
    assert all("name" in row and list(row) == sorted(row) for row in json.loads(text))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"name":"x"}]', "null"])
def test_a_mapping_that_cannot_be_understood_is_an_error(text: str) -> None:
    with pytest.raises(SplitError, match="mapping cannot be understood"):
        Mapping.from_json(text)


def test_paths_within_a_column_and_partition_columns_are_accepted_in_lists() -> None:
    schema = pa.schema(
        [
            ("u", pa.struct([("age", pa.int64()), ("name", pa.string())])),
            ("n", pa.int64()),
            ("day", pa.string()),
        ]
    )
    options = Options.parse(
        {
            "indexing.fastfields": "u.age,day",
            "indexing.nonfastfields": "u.name,n",
            "indexing.storeonlyfields": "u.other",
            "indexing.typemap.day": "text",
            "indexing.json.mode": "minimal",
        }
    )
    mapping = mapping_for(schema, options, ["day"])
    assert [(f.column, f.fast) for f in mapping.fields] == [("u", True), ("n", False)]


def test_all_names_that_are_no_columns_are_in_one_message() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
    options = Options.parse(
        {
            "indexing.fastfields": "x,b,y",
            "indexing.typemap.z": "text",
            "indexing.tokenizer.raw": "a,w",
            "indexing.typemap.a": "text",
            "indexing.nonfastfields": "v.age",
        }
    )
    with pytest.raises(OptionError) as caught:
        mapping_for(schema, options)
    assert all(f"'{name}'" in str(caught.value) for name in ("x", "y", "z", "w", "v.age"))
    assert "but the columns are: a, b" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["text_uuid_exactonly", "text_uuid_strip", "text_custom_exactonly:[0-9]{2,3}", "text_custom_strip:a|b"],
)
def test_compact_types_of_the_scala_release_are_text(name: str) -> None:
    assert only(mapping(typemap__body=name), "body").kind is Kind.TEXT


def test_a_compact_type_with_a_wrong_pattern_is_refused() -> None:
    with pytest.raises(OptionError, match="a field type"):
        mapping(typemap__body="text_custom_strip:[0-9")


NESTED = pa.schema(
    [
        ("u", pa.struct([("age", pa.int64()), ("name", pa.string()), ("city", pa.string())])),
        ("payload", pa.string()),
        ("n", pa.int64()),
        ("day", pa.string()),
    ]
)


def nested(**options: str) -> Mapping:
    given = {f"indexing.{name.replace('__', '.')}": value for name, value in options.items()}
    return mapping_for(NESTED, Options.parse(given), ["day"])


def test_the_type_of_a_field_within_a_column_decides_how_strings_in_the_column_are_indexed() -> None:
    words = only(nested(**{"typemap__u.name": "text"}), "u")
    assert (words.kind, words.tokenizer, words.record) == (Kind.JSON, "default", "position")
    assert only(nested(typemap__text="u.name, U.City"), "u") == words
    assert (
        only(nested(**{"typemap__u.name": "text", "tokenizer__u.name": "en_stem"}), "u").tokenizer
        == "en_stem"
    )
    assert only(nested(tokenizer__en_stem="u.name"), "u").tokenizer == "en_stem"
    for whole in ("string", "exact_only", "json"):
        assert nested(**{"typemap__u.name": whole}) == nested()
    payload = only(nested(typemap__payload="json", **{"typemap__payload.message": "text"}), "payload")
    assert (payload.kind, payload.tokenizer) == (Kind.JSON, "default")
    assert nested(**{"typemap__day.x": "text", "tokenizer__day.x": "raw"}) == nested()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typemap__u.name": "text", "typemap__u.city": "string"}, "'indexing.typemap.u.city' is 'string'"),
        ({"typemap__u.name": "string", "tokenizer__u": "default"}, "in another way"),
        ({"typemap__u.name": "ip"}, "either string or text"),
        ({"typemap__u.name": "string,text"}, "either string or text"),
        ({"tokenizer__u.name": "en_stem", "tokenizer__u.city": "raw"}, "indexed alike"),
        ({"typemap__n.x": "text"}, "'n' \\(int64\\): it is not indexed as json, so that 'n.x'"),
        ({"typemap__payload.x": "text"}, "it is not indexed as json"),
        ({"typemap__payload": "text", "tokenizer__payload.x": "raw"}, "it is not indexed as json"),
        ({"typemap__v.x": "text"}, "names the column 'v.x'"),
    ],
)
def test_types_of_fields_that_cannot_hold_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        nested(**options)
