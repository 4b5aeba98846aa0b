"""Rule track_study: the finished runs of a study into MLflow."""

from pathlib import Path

from fglbench.stages.job import logged
from fglbench.stages.track import track

with logged(snakemake.log[0]):
    track(
        Path(snakemake.input.study).parent,
        Path(snakemake.params.results),
        Path(snakemake.output[0]),
        uri=snakemake.params.uri,
        experiment=snakemake.params.experiment,
    )
