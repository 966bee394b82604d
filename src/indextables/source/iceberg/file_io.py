"""Metadata and manifests for pyiceberg, read through our stores: one set of credentials, our errors."""

import io
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from indextables.errors import ObjectMissingError, SourceChangedError
from indextables.source.locations import Locations


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
    """pyiceberg's file access on top of a source's locations; for reading only."""

    def __init__(self, locations: Locations) -> None:
        super().__init__()
        self._locations = locations

    def new_input(self, location: str) -> InputFile:
        """The file at a recorded path."""
        return _StoredFile(location, self._locations)

    def new_output(self, location: str) -> OutputFile:
        """Never: sources are only read."""
        raise NotImplementedError(f"a source is only read, and {location} was to be written")

    def delete(self, location: Any) -> None:  # noqa: ANN401 - pyiceberg's signature
        """Never: sources are only read."""
        raise NotImplementedError(f"a source is only read, and {location} was to be deleted")
