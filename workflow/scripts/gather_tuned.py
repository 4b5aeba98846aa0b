"""Rule tune_<study>: write the settings that the searches of a study found to `results/tune/<study>.yaml`."""

from pathlib import Path

from fglbench.config.schema import Study
from fglbench.config.searches import plan_searches
from fglbench.registry import use_folders
from fglbench.stages.job import logged
from fglbench.tuning.search import write_tuned

with logged(snakemake.log[0]):
    use_folders([Path(folder) for folder in snakemake.params.components])
    study = Study.model_validate(snakemake.params.study)
    path = Path(snakemake.output[0])
    write_tuned(plan_searches(study), path.with_suffix(""), path)
