"""Tokenizers: the analyzers of text fields, the Tantivy schema that names them, and the tokens of a query."""

from functools import lru_cache
from typing import NamedTuple

import tantivy

from indextables.options.writing import TokenBoundary, Tokenizer
from indextables.split.mapping import PARTIAL_FIELD, ROW_FIELD, Field, Kind, Mapping

# Letters and digits, as the default tokenizer counts them.
_WORD = r"\p{Alphabetic}\p{N}"
_CJK = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\u{30FC}\u{FF70}"
# One token for each Chinese, Japanese or Korean character, one for each word of other scripts. Characters
# follow each other in position, so a text of several characters is searched as a phrase.
_CJK_PATTERN = rf"[{_CJK}]|[{_WORD}&&[^{_CJK}]]+"
# Longer than any token: nothing is dropped.
_NO_LIMIT = (1 << 32) - 2


def analyzer_name(field: Field) -> str:
    """The name under which a field's analyzer is registered: tokenizer and longest token."""
    return f"{field.tokenizer}_{field.max_token}"


@lru_cache(maxsize=256)
def analyzer(tokenizer: Tokenizer, max_token: int) -> tantivy.TextAnalyzer:
    """The analyzer: splits text into tokens, drops those over `max_token` bytes, changes case, stems.

    >>> from indextables.options.writing import find_tokenizer
    >>> analyzer(find_tokenizer("default"), 5).analyze("The Quick FOX-es, jumping")
    ['the', 'quick', 'fox', 'es']
    >>> analyzer(find_tokenizer("cjk"), 255).analyze("東京 Tower")
    ['東', '京', 'tower']
    """
    # Tantivy's filter keeps tokens shorter than its limit.
    keep = tantivy.Filter.remove_long(max_token + 1)
    builder = tantivy.TextAnalyzerBuilder(_splitter(tokenizer)).filter(keep)
    if tokenizer.lower_case:
        builder = builder.filter(tantivy.Filter.lowercase())
    if tokenizer.stemmer is not None:
        builder = builder.filter(tantivy.Filter.stemmer(tokenizer.stemmer))
    return builder.build()


def _splitter(tokenizer: Tokenizer) -> tantivy.Tokenizer:
    match tokenizer.boundary:
        case TokenBoundary.NONE:
            return tantivy.Tokenizer.raw()
        case TokenBoundary.WORD:
            return tantivy.Tokenizer.simple()
        case TokenBoundary.SPACE:
            return tantivy.Tokenizer.whitespace()
        case TokenBoundary.CHARACTER:
            return tantivy.Tokenizer.regex(_CJK_PATTERN)
        case TokenBoundary.GRAM:
            assert tokenizer.grams is not None
            return tantivy.Tokenizer.ngram(min_gram=tokenizer.grams[0], max_gram=tokenizer.grams[1])


def analyzer_of(field: Field) -> tantivy.TextAnalyzer:
    """The analyzer of a text, json or string field, for queries as for documents."""
    return analyzer(field.analysis, field.max_token)


def register_tokenizers(index: tantivy.Index, mapping: Mapping) -> None:
    """Register the analyzers of a mapping with an index; needed whenever an index is opened."""
    for field in mapping.fields:
        if field.kind in (Kind.TEXT, Kind.JSON):
            index.register_tokenizer(analyzer_name(field), analyzer_of(field))
            index.register_fast_field_tokenizer(analyzer_name(field), analyzer_of(field))


def tantivy_schema(mapping: Mapping) -> tantivy.Schema:
    """The schema of the index: the mapping's fields, `_row` and `_partial`."""
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field(ROW_FIELD, fast=True)
    builder.add_text_field(PARTIAL_FIELD, tokenizer_name="raw", index_option="basic")
    for field in mapping.fields:
        _add(builder, field)
    return builder.build()


def _add(builder: tantivy.SchemaBuilder, field: Field) -> None:
    match field.kind:
        case Kind.STRING:
            builder.add_text_field(field.name, fast=field.fast, tokenizer_name="raw", index_option="basic")
        case Kind.TEXT:
            builder.add_text_field(field.name, tokenizer_name=analyzer_name(field), index_option=field.record)
        case Kind.JSON:
            builder.add_json_field(
                field.name,
                fast=field.fast,
                tokenizer_name=analyzer_name(field),
                index_option=field.record,
            )
        case Kind.IP:
            builder.add_ip_addr_field(field.name, indexed=field.indexed, fast=field.fast)
        case Kind.I64 | Kind.HASH:
            builder.add_integer_field(field.name, indexed=field.indexed, fast=field.fast)
        case Kind.F64:
            builder.add_float_field(field.name, indexed=field.indexed, fast=field.fast)
        case Kind.BOOL:
            builder.add_boolean_field(field.name, indexed=field.indexed, fast=field.fast)


class Token(NamedTuple):
    """A token and its position in its text."""

    position: int
    text: str


def tokenize(field: Field, text: str) -> list[Token]:
    """The tokens of a text in this field, including those that are too long for the index."""
    return _tokens(field.analysis, text)


def tokenize_unstemmed(field: Field, text: str) -> list[Token]:
    """The tokens without stemming: for prefixes and misspelt words."""
    return _tokens(field.analysis.without_stemming, text)


def tokenize_prefix(field: Field, text: str) -> list[Token]:
    """The tokens of a text that ends in a prefix: the last token is not stemmed, the others are."""
    begun = tokenize_unstemmed(field, text)
    return [*tokenize(field, text)[:-1], begun[-1]] if begun else []


def _tokens(tokenizer: Tokenizer, text: str) -> list[Token]:
    tokens = analyzer(tokenizer, _NO_LIMIT).pre_tokenize(text).tokens
    return [Token(token.position, token.text) for token in tokens]


def lower_case(text: str) -> str:
    """Lower case, letter by letter, as Tantivy does it.

    >>> lower_case("ΟΔΟΣ")
    'οδοσ'
    """
    return "".join(c.lower() for c in text)
