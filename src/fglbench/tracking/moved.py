"""The store below `results/` after its project has moved: MLflow keeps absolute places, which are put right here."""

import sqlite3
from contextlib import closing
from pathlib import Path


def point_to(database: Path, folder: Path) -> int:
    """Has the experiments and runs of an SQLite store keep their artifacts in `folder`, wherever it lay before.

    Only artifacts in folders of the same two last names (`tracking/artifacts`) are meant; others were placed by someone
    else and stay. All is done in one transaction.

    Args:
        database: made by MLflow.
        folder: absolute.

    Returns:
        The number of runs that named another place.
    """
    here, ending = folder.as_uri(), f"/{folder.parent.name}/{folder.name}"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "UPDATE experiments SET artifact_location = :here "
            "WHERE artifact_location LIKE 'file:%' || :ending AND artifact_location != :here",
            {"here": here, "ending": ending},
        )
        moved = connection.execute(
            "UPDATE runs SET artifact_uri = :here || '/' || run_uuid || '/artifacts' "
            "WHERE artifact_uri LIKE 'file:%' || :ending || '/' || run_uuid || '/artifacts' "
            "AND artifact_uri != :here || '/' || run_uuid || '/artifacts'",
            {"here": here, "ending": ending},
        )
        return moved.rowcount
