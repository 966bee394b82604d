"""Iceberg metadata by pyiceberg: file access by our stores, types as in Spark, columns by field id."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from indextables.errors import (
    ObjectMissingError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    UnsupportedSourceError,
)
from indextables.options import Options
from indextables.options.maintenance import (
    ICEBERG_CATALOG_TYPE,
    ICEBERG_CREDENTIAL,
    ICEBERG_TOKEN,
    ICEBERG_URI,
    ICEBERG_WAREHOUSE,
)
from indextables.schema.spark import to_arrow
from indextables.source.columns import Column
from indextables.source.locations import Locations

_SPARK = {
    BooleanType(): "boolean",
    IntegerType(): "integer",
    LongType(): "long",
    FloatType(): "float",
    DoubleType(): "double",
    DateType(): "date",
    TimestampType(): "timestamp_ntz",
    TimestamptzType(): "timestamp",
    StringType(): "string",
    UUIDType(): "string",
    BinaryType(): "binary",
}


# Properties of pyiceberg's catalogs, and the options with the same meaning.
_CATALOG_OPTIONS = {
    "type": ICEBERG_CATALOG_TYPE,
    "uri": ICEBERG_URI,
    "token": ICEBERG_TOKEN,
    "credential": ICEBERG_CREDENTIAL,
    "warehouse": ICEBERG_WAREHOUSE,
}


def table_of_catalog(catalog: Mapping[str, str], name: str, options: Options) -> tuple[str, str]:
    """The folder and the current metadata file of a table, from its catalog.

    Args:
        catalog: the catalog's name, and perhaps its type and warehouse.
        name: the table's name in the catalog, with its namespace.
        options: where the catalog is, and the credentials for it; what they do not say is in pyiceberg's
            own configuration, under the catalog's name.

    Raises:
        SourceNotFoundError: the catalog has no such table.
        SourceError: the catalog does not answer, or is unknown.
    """
    values = {key: options.get(option) for key, option in _CATALOG_OPTIONS.items()}
    recorded = {key: catalog[key] for key in ("type", "warehouse") if key in catalog}
    properties = {key: value for key, value in {**values, **recorded}.items() if value is not None}
    shown = f"the Iceberg catalog {catalog['name']!r}"
    try:
        table = load_catalog(catalog["name"], **properties).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise SourceNotFoundError(
            f"{shown} has no table {name!r} ({error}); give namespace and name"
        ) from None
    except Exception as error:  # noqa: BLE001 - each kind of catalog raises errors of its own client library
        # Their messages can contain the URI with its password, a token, or all properties.
        raise SourceError(
            f"{shown} did not return the table {name!r} ({type(error).__name__}); iceberg.uri, iceberg.token "
            "and iceberg.credential, or pyiceberg's configuration of the catalog, say where it is and who "
            "reads it: check them; pyiceberg's `load_catalog` shows the whole error"
        ) from None
    return table.location(), table.metadata_location


def arrow_schema(schema: Schema) -> pa.Schema:
    """Spark's schema, as Arrow; UnsupportedSourceError for types that Spark cannot read."""
    fields = [_field_json(field, field.name) for field in schema.fields]
    return to_arrow(json.dumps({"type": "struct", "fields": fields}))


def columns_by_id(schema: Schema) -> tuple[Column, ...]:
    """The columns with their field ids and the defaults for files that lack them."""
    return tuple(
        column(field, arrow) for field, arrow in zip(schema.fields, arrow_schema(schema), strict=True)
    )


def column(field: NestedField, arrow: pa.Field) -> Column:
    """A column, with the Arrow field of its Spark type."""
    default = field.initial_default
    if default is not None and isinstance(field.field_type, UUIDType):
        default = str(default)
    return Column(
        arrow,
        field.field_id,
        default,
        _children(field.field_type, arrow.type),
        field.required,
        isinstance(field.field_type, UUIDType),
    )


def _children(kind: IcebergType, arrow: pa.DataType) -> tuple[Column, ...]:
    match kind:
        case StructType():
            return tuple(column(f, a) for f, a in zip(kind.fields, arrow, strict=True))
        case ListType():
            return (column(kind.element_field, arrow.value_field),)
        case MapType():
            return (column(kind.key_field, arrow.key_field), column(kind.value_field, arrow.item_field))
        case _:
            return ()


def _field_json(field: NestedField, path: str) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type_json(field.field_type, path),
        "nullable": not field.required,
        "metadata": {"comment": field.doc} if field.doc else {},
    }


def _type_json(kind: IcebergType, path: str) -> object:
    match kind:
        case StructType():
            return {"type": "struct", "fields": [_field_json(f, f"{path}.{f.name}") for f in kind.fields]}
        case ListType():
            element = _type_json(kind.element_type, f"{path}.element")
            return {"type": "array", "elementType": element, "containsNull": not kind.element_required}
        case MapType():
            return {
                "type": "map",
                "keyType": _type_json(kind.key_type, f"{path}.key"),
                "valueType": _type_json(kind.value_type, f"{path}.value"),
                "valueContainsNull": not kind.value_required,
            }
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case FixedType():
            return "binary"
        case _:
            pass
    name = _SPARK.get(kind)  # type: ignore[call-overload]  # primitive types are singletons
    if name is None:
        raise UnsupportedSourceError(f"the type {kind} of Iceberg", f"column {path} has it")
    return str(name)


class _StoredFile(InputFile):
    """A file that is read as a whole."""

    def __init__(self, location: str, locations: Locations) -> None:
        super().__init__(location)
        self._place = locations.resolve(location, encoded=False)

    def __len__(self) -> int:
        return self._place.store.head(self._place.path).size

    def exists(self) -> bool:
        return self._place.store.exists(self._place.path)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's signature
        try:
            return io.BytesIO(self._place.store.get(self._place.path))
        except ObjectMissingError as error:
            raise SourceChangedError(error.url, "is not there any more") from None


class StoreIO(FileIO):
    """pyiceberg's file access through a source's locations; read-only."""

    def __init__(self, locations: Locations) -> None:
        super().__init__()
        self._locations = locations

    def new_input(self, location: str) -> InputFile:
        """The file at a recorded path."""
        return _StoredFile(location, self._locations)

    def new_output(self, location: str) -> OutputFile:
        """Not supported: sources are read-only."""
        raise NotImplementedError(f"sources are read-only, so {location} is not written")

    def delete(self, location: Any) -> None:  # noqa: ANN401 - pyiceberg's signature
        """Not supported: sources are read-only."""
        raise NotImplementedError(f"sources are read-only, so {location} is not deleted")
