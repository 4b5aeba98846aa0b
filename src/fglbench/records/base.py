"""Base class of records in JSON: a typed model that reads, checks and writes one file of a folder."""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fglbench.errors import StorageError
from fglbench.records.checksums import check_listed
from fglbench.storage import MAKE_AGAIN, read_json, write_json


def first_problem(error: ValidationError) -> str:
    """Describe the first invalid field of a record.

    Args:
        error: as raised by the model of the record.

    Returns:
        The key, with dots between its parts, and the problem; without a full stop.
    """
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


class Record(BaseModel):
    """A JSON file with typed fields; unknown keys are ignored, so that files of newer versions can be read.

    Attributes:
        NAME: the file name.
    """

    model_config = ConfigDict(frozen=True)
    NAME: ClassVar[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the record in a folder.

        Args:
            folder: that contains the file `NAME`.

        Returns:
            The record.

        Raises:
            StorageError: the file is missing or unreadable, does not match the list of its job, or has a missing or
                invalid field.
        """
        path = folder / cls.NAME
        try:
            return cls.model_validate(read_json(path))
        except ValidationError as error:
            check_listed(path)
            raise StorageError(f"{path}: {first_problem(error)}. {MAKE_AGAIN}") from error

    def write(self, folder: Path) -> None:
        """Write the fields that were set to the file `NAME`.

        Args:
            folder: in which the file is written.
        """
        values = self.model_dump(mode="json")
        write_json(folder / self.NAME, {name: values[name] for name in self.model_fields_set})
