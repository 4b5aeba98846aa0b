"""What the records in JSON have in common: a typed model that reads, checks and writes one file of a folder."""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fglbench.errors import StorageError
from fglbench.records.checksums import check_listed
from fglbench.storage import MAKE_AGAIN, read_json, write_json


class Record(BaseModel):
    """A file of JSON; keys that are not fields are left out when it is read, so that newer files can be read too.

    Attributes:
        NAME: of the file.
    """

    model_config = ConfigDict(frozen=True)
    NAME: ClassVar[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The record in a folder.

        Raises:
            StorageError: it is missing, unreadable, of another form, or not what the list of its job says.
        """
        path = folder / cls.NAME
        try:
            return cls.model_validate(read_json(path))
        except ValidationError as error:
            check_listed(path)
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            raise StorageError(f"{path}: {key}: {first['msg']}. {MAKE_AGAIN}") from error

    def write(self, folder: Path) -> None:
        """Writes the fields that were set, into a folder."""
        values = self.model_dump(mode="json")
        write_json(folder / self.NAME, {name: values[name] for name in self.model_fields_set})
