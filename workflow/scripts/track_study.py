"""Rule track_study: import the finished runs of a study into MLflow."""

from pathlib import Path

from fglbench.config.expand import expand
from fglbench.config.schema import Study
from fglbench.registry import use_folders
from fglbench.stages.job import logged
from fglbench.stages.track import track
from fglbench.tracking import TrackingError
from fglbench.tracking.postponed import postpone

with logged(snakemake.log[0]) as say:
    use_folders([Path(folder) for folder in snakemake.params.components])
    specs = {cell.id: cell.specs for cell in expand(Study.model_validate(snakemake.params.settings)).cells}
    output, failures = Path(snakemake.output[0]), snakemake.params.failures
    try:
        track(
            Path(snakemake.input.study).parent,
            Path(snakemake.params.results),
            output,
            uri=snakemake.params.uri,
            experiment=snakemake.params.experiment,
            failures=failures,
            specs=specs,
        )
    except TrackingError as error:
        # The study is complete without its import. The next run of the workflow retries it.
        say(f"Not imported into MLflow: {error}")
        postpone(output, error, failures)
