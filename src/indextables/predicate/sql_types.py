"""Types as SQL writes them in a CAST."""

import pyarrow as pa

from indextables.predicate.lexer import TokenKind
from indextables.predicate.literals import LOCAL, ZONED
from indextables.predicate.names import suggestion
from indextables.predicate.sql_cursor import Cursor

# Types that have a function of their name, as double('NaN').
CASTS = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.decimal128(10, 0),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": ZONED,
}
_TYPES = CASTS | {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "REAL": pa.float32(),
    "DEC": pa.decimal128(10, 0),
    "NUMERIC": pa.decimal128(10, 0),
    "TIMESTAMP_LTZ": ZONED,
    "TIMESTAMP_NTZ": LOCAL,
}


def read_type(cursor: Cursor) -> pa.DataType:
    """The type whose name is under the cursor, which is moved behind it."""
    token = cursor.token
    name = token.text.upper()
    if token.kind is not TokenKind.WORD or name not in _TYPES:
        hint = suggestion(name, _TYPES) or ";"
        raise cursor.error(f"{token.text!r} is no type to cast to{hint} these are: {', '.join(_TYPES)}")
    cursor.take()
    if not pa.types.is_decimal(_TYPES[name]) or not cursor.accept_symbol("("):
        return _TYPES[name]
    precision, scale = _digits(cursor), 0
    if cursor.accept_symbol(","):
        scale = _digits(cursor)
    cursor.expect_symbol(")", "after the digits of DECIMAL")
    if not 1 <= precision <= 38 or scale > precision:
        raise cursor.error("a DECIMAL has 1 to 38 digits, and no more of them behind the point", token.start)
    return pa.decimal128(precision, scale)


def _digits(cursor: Cursor) -> int:
    text = cursor.token.text
    if cursor.token.kind is not TokenKind.NUMBER or not text.isdecimal() or len(text) > 2:
        raise cursor.error("a number of digits should stand here, as in DECIMAL(10, 2)")
    return int(cursor.take().text)
