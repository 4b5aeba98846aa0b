"""The catalogue row of a user's own dataset, from the constants of its file; see docs/adding-a-dataset.md.

Like the catalogue, this module imports neither torch, pandas nor a loader.
"""

from pydantic import ConfigDict, ValidationError

from fglbench.datasets.spec import Counts, DatasetSpec
from fglbench.errors import ComponentError
from fglbench.registry import Declaration
from fglbench.settings import ComponentSettings, Field, Section


class _Counts(Section):
    nodes: int = Field(ge=1)
    edges: int = Field(ge=0)
    features: int = Field(ge=1)
    classes: int = Field(ge=1)


class _Constants(Section):
    """Constants of the file that describe the dataset; other constants are ignored."""

    model_config = ConfigDict(extra="ignore")

    COUNTS: _Counts
    TITLE: str = ""
    FILES: list[str] = Field([])
    SPLIT: bool = False
    NEGATIVE_FEATURES: bool = False
    SOURCE: str = ""
    CITATION: str = "none given"
    LICENSE: str = "not stated"
    CONTENT_HASH: str | None = None


def own_spec(declared: Declaration) -> DatasetSpec:
    """Make the row of a dataset from a file of `datasets/` in a components folder.

    Args:
        declared: name, constants and summary of the file.

    Returns:
        The row of the catalogue.

    Raises:
        ComponentError: constants are missing or have a wrong type (the message names all of them), or the file declares
            settings.
    """
    if declared.settings is not ComponentSettings:
        raise ComponentError(
            f"{declared.path}: a user's dataset has no 'Settings', because its counts are constants. Write one file "
            "for each graph."
        )
    try:
        constants = _Constants.model_validate(declared.constants)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        raise ComponentError(
            f"{declared.path}: {'; '.join(problems)}. Write each constant as a "
            "literal, not as an expression; see docs/adding-a-dataset.md."
        ) from error
    return DatasetSpec(
        name=declared.name,
        title=constants.TITLE or declared.name,
        family="own",
        loader="own",
        counts=Counts(**constants.COUNTS.model_dump()),
        about=declared.summary,
        source=constants.SOURCE or f"{declared.path.name}, your own",
        citation=constants.CITATION,
        license=constants.LICENSE,
        content_hash=constants.CONTENT_HASH,
        component=declared.path,
        own_files=tuple(declared.path.parent / name for name in constants.FILES),
        own_split=constants.SPLIT,
        own_negative=constants.NEGATIVE_FEATURES,
        version=declared.version,
    )
