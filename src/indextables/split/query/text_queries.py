"""Tantivy queries for words, phrases and patterns on a text or string field."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import assert_never

import tantivy
from tantivy import Query

from indextables.errors import QuerySyntaxError
from indextables.predicate import patterns
from indextables.predicate.tree import (
    AllDocs,
    Exists,
    Fuzzy,
    InSet,
    Phrase,
    Prefix,
    QueryLeaf,
    Range,
    Regex,
    Term,
    Wild,
    Wildcard,
)
from indextables.split.footer import positions_key
from indextables.split.index.loader import IndexPart, TermRange, prefix_range
from indextables.split.index.tokenizers import (
    Token,
    lower_case,
    tokenize,
    tokenize_prefix,
    tokenize_unstemmed,
)
from indextables.split.mapping import MAX_TERM, Field, Kind
from indextables.split.query.index_view import IndexView
from indextables.split.query.row_sets import (
    ALL_ROWS,
    FALSE,
    NO_ROWS,
    IndexAnswer,
    RowSet,
    intersect,
    or_,
    two_valued,
    union,
)

# Lower case and stemming shorten a token by no more than this; a longer token may have been dropped.
_SHRINK_FACTOR, _SHRINK_BYTES = 3, 32
# Tantivy's limit for the expansions of a phrase of regular expressions.
_MAX_EXPANSIONS = 1 << 14
# Up to this many phrases are cheaper than one phrase of regular expressions.
_FEW_PHRASES = 64
_NARROW_CHARACTERS = 12
# More characters after a placeholder for any text make an automaton that takes a second to build.
_MAX_INNER_TEXT = 128


def matches_with_slop(phrase: Sequence[Token], positions: Mapping[str, Sequence[int]], slop: int) -> bool:
    """Whether a text matches a phrase with slop, by Lucene's definition.

    A phrase is a list of words with offsets (0, 1, 2, ..). A text matches with slop `n` if every word of the
    phrase can be assigned a position of that word in the text so that

    * equal words of the phrase have different positions, and
    * `position - offset` of any two words of the phrase differ by at most `n`.

    So `"a b"~1` allows one word in between, `"a b"~2` also the words swapped (`b a`), and `"a a"~9` needs
    two `a`.

    Args:
        phrase: The words of the phrase with their offsets.
        positions: The positions of each word in the text, ascending.
        slop: The slop.
    """
    if any(not positions.get(word.text) for word in phrase):
        return False
    words = sorted(phrase)
    starts = sorted({place - word.position for word in words for place in positions[word.text]})
    return any(_fits(words, positions, start, start + slop) for start in starts)


def _fits(words: Sequence[Token], positions: Mapping[str, Sequence[int]], low: int, high: int) -> bool:
    """Whether every word has a position, not shared with an equal word, with `position - offset` in bounds.

    The words are in the order of their offsets. So the bounds of a repeated word only increase, and its
    lowest free position is always a right choice.
    """
    used: dict[str, int] = {}
    for word in words:
        own = positions[word.text]
        place = max(bisect_left(own, low + word.position), used.get(word.text, 0))
        if place == len(own) or own[place] > high + word.position:
            return False
        used[word.text] = place + 1
    return True


def adjacent_pairs(phrase: Sequence[Token]) -> list[tuple[Token, Token]]:
    """Pairs of different words that follow each other; in a matching text each pair is within the slop."""
    return [(one, other) for one, other in pairwise(phrase) if one.text != other.text]


def compile_text(leaf: QueryLeaf, field: Field, view: IndexView) -> IndexAnswer:
    """The answer of the index for a leaf on a text field, or on a string field."""
    terms = _Terms(field, view)
    match leaf:
        case Term(text=text):
            return terms.words(text)
        case Phrase(text=text, slop=slop, prefix=prefix):
            return terms.prefix(text) if prefix else terms.words(text, slop)
        case Prefix(text=text):
            return terms.prefix(text)
        case Wildcard(parts=parts):
            pieces = tuple(p if isinstance(p, Wild) else terms.fold_case(p) for p in parts)
            return terms.wildcard(pieces)
        case Regex(pattern=pattern):
            return terms.pattern(pattern, field.name, leaf)
        case Fuzzy(text=text, distance=distance):
            return terms.fuzzy(text, distance)
        case Range(lower=lower, upper=upper):
            return terms.between(leaf, lower, upper)
        case InSet(values=values):
            return or_(terms.words(value) for value in values)
        case Exists() | AllDocs():
            raise AssertionError(f"{type(leaf).__name__} is not a leaf of text")
        case _:
            assert_never(leaf)


def terms_of_pattern(field: Field, parts: Sequence[str | Wild]) -> IndexPart:
    """The terms that a pattern can match: those that begin with the text before its first placeholder."""
    first = parts[0] if parts else ""
    return field.name if isinstance(first, Wild) else prefix_range(field.name, first)


def values_query(field: Field, view: IndexView, texts: Sequence[str]) -> RowSet:
    """Rows of a string field with one of the values."""
    return _Terms(field, view).one_of(texts)


class _Terms:
    """The terms of one field."""

    def __init__(self, field: Field, view: IndexView) -> None:
        self.field = field
        self.view = view
        self.tokenized = field.kind is Kind.TEXT

    def fold_case(self, text: str) -> str:
        """A part of a pattern, in lower case if terms are."""
        return lower_case(text) if self.tokenized and self.field.analysis.lower_case else text

    def words(self, text: str, slop: int = 0) -> IndexAnswer:
        if not self.tokenized:
            return self._complete_unless_long(self._term(text), [text], exactly=True)
        tokens = tokenize(self.field, text)
        if not tokens:
            return FALSE
        texts = [token.text for token in tokens]
        rows, certain = self._together(tokens, slop)
        if not certain:
            candidates = union((rows, self._maybe_dropped(texts)))
            return two_valued(candidates, candidates)
        return self._complete_unless_long(rows, texts)

    def one_of(self, texts: Sequence[str]) -> RowSet:
        """Rows with one of the values."""
        self.view.need_terms(self.field, texts)
        query = Query.term_set_query(self.view.schema, self.field.name, texts)
        rows = self._plain_term(texts[0]) if len(texts) == 1 else query
        lacking = self._maybe_dropped(texts, exactly=True)
        return RowSet(union((rows, lacking)), lacking)

    def prefix(self, text: str) -> IndexAnswer:
        """Words of which the last is a prefix; or the prefix of a value."""
        tokens = tokenize_prefix(self.field, text) if self.tokenized else []
        if len(tokens) > 1 and len({token.position for token in tokens}) == 1:
            return self.words(text)  # n-grams: any part of a word is a term
        if len(tokens) < 2:
            start = tokens[0].text if tokens else self.fold_case(text)
            return self.wildcard((start, Wild.MANY))
        partial = self.view.partial(self.field)
        *words, last = [Token(t.position - tokens[0].position, t.text) for t in tokens]
        narrow = intersect((*map(self._plain_term, (w.text for w in words)), self._prefix_query(last.text)))
        candidates = union((Query.const_score_query(narrow, 1.0), partial))
        if self.field.record != "position":
            return two_valued(candidates, candidates)
        endings = self.view.terms_with_prefix(self.field, last.text)
        if len(endings) <= _FEW_PHRASES:
            phrases = union(self._plain_phrase([*words, Token(last.position, e)]) for e in endings)
            rows = NO_ROWS if phrases is NO_ROWS else Query.const_score_query(phrases, 1.0)
            return two_valued(union((rows, partial)), partial)
        if len(endings) < _MAX_EXPANSIONS:
            pieces: list[str | tuple[int, str]] = [(w.position, patterns.literal(w.text)) for w in words]
            pieces.append((last.position, patterns.literal(last.text) + patterns.ANY))
            self.view.need(self.field.name, positions_key(self.field.name))
            query = Query.regex_phrase_query(self.view.schema, self.field.name, pieces)
            rows = Query.const_score_query(query, 1.0)
            return two_valued(union((rows, partial)), partial)
        return two_valued(candidates, candidates)

    def wildcard(self, parts: Sequence[str | Wild]) -> IndexAnswer:
        """Rows with a term that literals and placeholders match."""
        query = pattern_query(self.view, self.field, parts)
        partial = self.view.partial(self.field)
        rows = union((query.rows, partial))
        return two_valued(rows, partial if query.exact else rows)

    def pattern(self, expression: str, terms: IndexPart, user: Regex | None = None) -> IndexAnswer:
        """Rows with a term that the expression matches; all such terms are among `terms`."""
        rows = regex_query(self.view, self.field, expression, terms, user)
        partial = self.view.partial(self.field)
        if rows is None:
            return two_valued(ALL_ROWS, ALL_ROWS)
        return two_valued(union((rows, partial)), partial)

    def fuzzy(self, text: str, distance: int) -> IndexAnswer:
        tokens = tokenize_unstemmed(self.field, text) if self.tokenized else [Token(0, text)]
        if not tokens:
            return FALSE
        if len(tokens) > 1:
            words = ", ".join(f"'{token.text}'" for token in tokens)
            raise QuerySyntaxError(
                f"'{text}~{distance}': a fuzzy term must be one word, but the field '{self.field.column}' "
                f"has it as several ({words}); write them as separate words, each with its own ~"
            )
        word = tokens[0].text
        if longer_than_terms(self.field, len(word.encode()) - 4 * distance):
            partial = self.view.partial(self.field)
            return two_valued(partial, partial)
        self.view.need(self.field.name)
        rows = Query.const_score_query(
            Query.fuzzy_term_query(self.view.schema, self.field.name, word, distance), 1.0
        )
        # An edit may insert a character of up to four bytes.
        return self._complete_unless_long(rows, [word + "\U0010ffff" * distance])

    def between(self, leaf: Range, lower: str | None, upper: str | None) -> IndexAnswer:
        low = None if lower is None else self.fold_case(lower)
        high = None if upper is None else self.fold_case(upper)
        rows, certain = text_range_query(
            self.view, self.field, low, high,
            lower_inclusive=leaf.lower_inclusive, upper_inclusive=leaf.upper_inclusive,
        )  # fmt: skip
        partial = self.view.partial(self.field)
        return two_valued(union((rows, partial)), partial if certain else union((rows, partial)))

    def _together(self, tokens: Sequence[Token], slop: int) -> tuple[tantivy.Query, bool]:
        """Rows that have the tokens next to each other, or with some slop, and whether that is exact.

        Tantivy's slop equals Lucene's (`matches_with_slop`) for two different words only. For longer
        phrases, and those with a repeated word, all adjacent pairs must be within the slop, and the rows
        need a recheck.
        """
        if len(tokens) == 1:
            return self._term(tokens[0].text), True
        if len({token.position for token in tokens}) == 1:
            # n-grams all have one position, so there is no order
            return intersect(self._term(token.text) for token in tokens), True
        if self.field.record != "position":
            return intersect(self._term(token.text) for token in tokens), False
        if slop == 0 or (len(tokens) == 2 and tokens[0].text != tokens[1].text):
            return self._phrase(tokens, slop), True
        pairs = adjacent_pairs(tokens)
        return intersect(self._phrase(pair, slop) for pair in pairs) if pairs else self._term(
            tokens[0].text
        ), False

    def _phrase(self, tokens: Sequence[Token], slop: int = 0) -> tantivy.Query:
        query = self._plain_phrase(tokens, slop)
        return self.view.with_score(query, self.field.name, [token.text for token in tokens])

    def _plain_phrase(self, tokens: Sequence[Token], slop: int = 0) -> tantivy.Query:
        first = tokens[0].position
        words: list[str | tuple[int, str]] = [(token.position - first, token.text) for token in tokens]
        self.view.need_terms(self.field, [token.text for token in tokens], positions=True)
        return Query.phrase_query(self.view.schema, self.field.name, words, slop)

    def _term(self, text: str) -> tantivy.Query:
        return self.view.with_score(self._plain_term(text), self.field.name, [text])

    def _plain_term(self, text: str) -> tantivy.Query:
        self.view.need_terms(self.field, [text])
        record = self.field.term_record if self.tokenized else "basic"
        return Query.term_query(self.view.schema, self.field.name, text, record)

    def _prefix_query(self, start: str) -> tantivy.Query:
        terms = prefix_range(self.field.name, start)
        return regex_query(self.view, self.field, patterns.literal(start) + patterns.ANY, terms) or ALL_ROWS

    def _maybe_dropped(self, texts: Sequence[str], *, exactly: bool = False) -> tantivy.Query:
        """The rows that may have one of these terms although the index dropped it."""
        for text in texts:
            size = len(text.encode())
            longest = size if exactly else _SHRINK_FACTOR * size + _SHRINK_BYTES
            if longest > self.field.max_token:
                return self.view.partial(self.field)
        return NO_ROWS

    def _complete_unless_long(
        self, rows: tantivy.Query, texts: Sequence[str], *, exactly: bool = False
    ) -> IndexAnswer:
        lacking = self._maybe_dropped(texts, exactly=exactly)
        return two_valued(union((rows, lacking)), lacking)


def text_range_query(
    view: IndexView,
    field: Field,
    lower: str | None,
    upper: str | None,
    *,
    lower_inclusive: bool,
    upper_inclusive: bool,
) -> tuple[tantivy.Query, bool]:
    """Rows with a term between the bounds, and whether that is exact."""
    if not patterns.too_long(lower, upper):
        expression = patterns.between(
            lower, upper, lower_inclusive=lower_inclusive, upper_inclusive=upper_inclusive
        )
        if expression is None:
            return NO_ROWS, True
        low_bytes = b"" if lower is None else lower.encode()
        terms = TermRange(field.name, low_bytes, None if upper is None else upper.encode() + b"\0")
        if (query := regex_query(view, field, expression, terms)) is not None:
            return query, True
    # Too long for an automaton: prefixes of the bounds give few candidates.
    low = None if lower is None else lower[:_NARROW_CHARACTERS]
    start = patterns.between(low, None)
    end = None if upper is None else patterns.up_to_beginning(upper[:_NARROW_CHARACTERS])
    narrow = [regex_query(view, field, e, field.name) or ALL_ROWS for e in (start, end) if e is not None]
    return (intersect(narrow) if field.kind is not Kind.TEXT else narrow[0]), False


def longer_than_terms(field: Field, size: int) -> bool:
    """Whether this many bytes are more than any term of the field has."""
    return size > min(_SHRINK_FACTOR * field.max_token + _SHRINK_BYTES, MAX_TERM)


def pattern_query(view: IndexView, field: Field, parts: Sequence[str | Wild]) -> RowSet:
    """Rows with a term that literals and placeholders match."""
    literals = [part for part in parts if not isinstance(part, Wild)]
    if longer_than_terms(field, sum(len(text.encode()) for text in literals)):
        return RowSet(NO_ROWS)
    exact = not patterns.has_inner_text(parts, _MAX_INNER_TEXT)
    # A part of the longest literal gives few candidates.
    sought = parts if exact else (Wild.MANY, max(literals, key=len, default="")[:_MAX_INNER_TEXT], Wild.MANY)
    rows = regex_query(view, field, patterns.wildcard(sought), terms_of_pattern(field, sought))
    if rows is None:
        return RowSet(ALL_ROWS, ALL_ROWS)
    return RowSet(rows) if exact else RowSet(rows, rows)


def regex_query(
    view: IndexView, field: Field, expression: str, terms: IndexPart, user: Regex | None = None
) -> tantivy.Query | None:
    """Rows with a term among `terms` that the expression matches; None if it is too large for Tantivy."""
    try:
        query = Query.regex_query(view.schema, field.name, expression)
    except ValueError as error:
        if "size limit" in str(error):
            return None
        if user is None:
            raise
        raise QuerySyntaxError(
            f"the regular expression /{user.pattern}/ at character {user.position + 1} of the query "
            f"cannot be used: {str(error).removeprefix('An invalid argument was passed: ')}; it always "
            "matches a whole term, so write it without ^ and $"
        ) from None
    view.need(terms)
    return query
