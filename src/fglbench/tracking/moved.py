"""Correct the absolute artifact locations in the MLflow store below `results/` after the project was moved."""

import sqlite3
from contextlib import closing
from pathlib import Path


def point_to(database: Path, folder: Path) -> int:
    """Set the artifact locations of an SQLite store to `folder`, in one transaction.

    Only locations that end in the last two names of `folder` (`tracking/artifacts`) are changed, because other
    locations were chosen by someone else.

    Args:
        database: the SQLite file of MLflow.
        folder: absolute path of the artifacts.

    Returns:
        The number of runs whose location was changed.
    """
    location, ending = folder.as_uri(), f"/{folder.parent.name}/{folder.name}"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "UPDATE experiments SET artifact_location = :location "
            "WHERE artifact_location LIKE 'file:%' || :ending AND artifact_location != :location",
            {"location": location, "ending": ending},
        )
        moved = connection.execute(
            "UPDATE runs SET artifact_uri = :location || '/' || run_uuid || '/artifacts' "
            "WHERE artifact_uri LIKE 'file:%' || :ending || '/' || run_uuid || '/artifacts' "
            "AND artifact_uri != :location || '/' || run_uuid || '/artifacts'",
            {"location": location, "ending": ending},
        )
        return moved.rowcount
