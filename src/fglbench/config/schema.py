"""The typed sections of a configuration, from which the JSON Schema in `docs/` is generated.

A configuration has two parts: the study (what to run and what to show), and keys that say where data lies and how jobs
run. A study file in `workflow/studies/` holds only the study.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field

from fglbench.federation.schedule import LocalPrivacy
from fglbench.partition.split import SplitSettings
from fglbench.records.component_files import Trust
from fglbench.records.presentation import FigureSettings, TableSettings
from fglbench.settings import Section
from fglbench.tasks import DEFAULT_TASK


def _entry(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _task(value: Any) -> Any:
    entry = _entry(value)
    if isinstance(entry, dict) and isinstance(entry.get("name"), str):
        return {**entry, "name": entry["name"].replace("_", "-")}
    return entry


def _components(value: Any) -> Any:
    return value if isinstance(value, dict | Section) else {"folders": value}


class Entry(Section):
    """A component: its name, or a mapping of its name and settings.

    An example of a mapping is `{name: fedprox, mu: 0.01, label: "FedProx mu=.01"}`.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False)

    name: str = Field(description="Name of the component.")
    label: str | None = Field(None, min_length=1, max_length=60, description="How tables and figures call it.")
    training: dict[str, Any] = Field({}, description="Keys of `training` that differ here; not for partition schemes.")
    protocol: dict[str, Any] = Field(
        {},
        description="Of a dataset: keys of `protocol` that differ there, of `task`, `split`, `setting` and `features`.",
    )
    printed: dict[Literal["dataset", "partition", "method", "backbone", "variant"], str] = Field(
        {}, description="What the paper's reference file has for it, by column, where that is not its name."
    )

    @property
    def settings(self) -> dict[str, Any]:
        """The component's settings that this entry gives; all others have their defaults."""
        return dict(self.model_extra or {})


Entries = Annotated[
    list[Annotated[Entry, BeforeValidator(_entry, json_schema_input_type=str | Entry)]], Field(min_length=1)
]


class Training(Section):
    """How clients train."""

    rounds: int = Field(100, ge=1, description="Communication rounds.")
    local_epochs: int = Field(3, ge=1, description="Passes over its training nodes that a client makes in a round.")
    hidden: int | None = Field(None, ge=1, description="Hidden width of all backbones; null: each backbone's default.")
    dropout: float | None = Field(None, ge=0, lt=1, description="Dropout of all backbones; null: their defaults.")
    lr: float = Field(0.01, gt=0, description="Learning rate of the local optimiser.")
    weight_decay: float = Field(0.0005, ge=0, description="L2 penalty added to the gradient.")
    optimiser: Literal["adam", "sgd"] = Field("adam", description="Local optimiser.")
    optimiser_state: Literal["kept", "reset"] = Field("kept", description="Its moments over rounds: kept or reset.")
    batch_size: int | None = Field(None, ge=1, description="Training nodes of a client in a local step; null: all.")
    participation: float = Field(1.0, gt=0, le=1, description="Fraction of clients drawn for a round, at least one.")
    ldp: LocalPrivacy | None = Field(
        None, description="Local differential privacy of uploaded parameters, under any method; null: none."
    )
    tolerance: float | None = Field(
        None,
        ge=0,
        description="A client has converged, and stops training, when its loss changes by less than this from one of "
        "its rounds to the next; null: all clients train in all rounds.",
    )


class Protocol(Section):
    """What is measured and how; the captions of tables state it."""

    task: Annotated[Entry, BeforeValidator(_task, json_schema_input_type=str | Entry)] = Field(
        Entry(name=DEFAULT_TASK), description="What is predicted, trained for and scored."
    )
    split: SplitSettings = Field(
        SplitSettings(), description="Roles of the nodes; a task that draws roles of its own has settings for them."
    )
    setting: Literal["transductive", "inductive"] = Field(
        "transductive",
        description="Training sees a client's whole graph, or (inductive) the graph without its validation and test "
        "nodes; scores are always of the whole graph.",
    )
    features: Literal["raw", "row", "identity"] = Field(
        "raw",
        description="Features as published, each row divided by its sum, or (identity) one-hot ids of the nodes of the "
        "whole graph.",
    )
    evaluate: Literal["aggregated", "trained"] = Field(
        "aggregated", description="Score parameters after the server's step, or after local training."
    )
    reading: Literal["val", "last", "test"] = Field(
        "val", description="Round shown: best validation accuracy, last, or best on test (marked)."
    )
    mean: Literal["pooled", "macro", "nodes", "weighted"] = Field(
        "pooled",
        description="Mean over clients, for selection and tables: by tested nodes, or plain. `nodes`: as `pooled`, "
        "but a node that several clients hold counts once, its score the mean over them. `weighted`: by what clients "
        "count at the server in that round (it selects as `pooled`).",
    )
    global_test: Literal["whole", "held_out"] | None = Field(
        None,
        description="Also score every client's model on the test nodes of all clients, in the whole graph, or on the "
        "nodes held out from all clients (split.held_out).",
    )
    logits: bool = Field(
        False, description="Store the logits of every node: AUC, average precision and loss are computed from them."
    )


class Grid(Section):
    """A product of values of the study, each given by label or name. A key that is left out stands for all values."""

    datasets: list[str] | None = Field(None, min_length=1, description="Of the study's datasets.")
    partitions: list[str] | None = Field(None, min_length=1, description="Of its partition schemes.")
    clients: list[int] | None = Field(None, min_length=1, description="Of its client counts.")
    methods: list[str] | None = Field(None, min_length=1, description="Of its methods.")
    backbones: list[str] | None = Field(None, min_length=1, description="Of its backbones.")
    seeds: int | list[int] | None = Field(None, description="Seeds, as for the study; null: the study's.")
    training: dict[str, Any] = Field({}, description="Keys of `training` that differ in this grid.")


class Override(Section):
    """Settings for some cells of the study.

    `datasets`, `backbones` and `methods` select cells by label or name, and `clients` selects them by client count. A
    cell must match every key that is given.
    """

    datasets: list[str] | None = Field(None, min_length=1, description="Datasets that it is for.")
    backbones: list[str] | None = Field(None, min_length=1, description="Backbones that it is for.")
    methods: list[str] | None = Field(None, min_length=1, description="Methods that it is for.")
    clients: list[int] | None = Field(None, min_length=1, description="Client counts that it is for.")
    settings: dict[str, Any] = Field({}, description="Of the methods; what an entry states itself stands.")
    backbone_settings: dict[str, Any] = Field({}, description="Of the backbones; as above.")
    training: dict[str, Any] = Field({}, description="Keys of `training`; what a method's entry states itself stands.")


class Range(Section):
    """The numbers from `low` to `high`, both included. They are integers if both ends are integers."""

    low: int | float = Field(description="Smallest value.")
    high: int | float = Field(description="Largest value.")
    log: bool = Field(False, description="Drawn evenly in the logarithm.")


Choices = dict[str, Annotated[list[Any], Field(min_length=1)] | Range]


PARTS = ("settings", "backbone_settings", "training")
"""The keys under which overrides and searches give values."""


class Search(Section):
    """The settings to search for some cells of the study.

    `datasets`, `backbones` and `methods` select cells by label or name. A cell must match every key that is given.
    Searches that select the same cell are combined into one. A setting that an entry gives itself is not searched.
    """

    datasets: list[str] | None = Field(None, min_length=1, description="Datasets that it is for.")
    backbones: list[str] | None = Field(None, min_length=1, description="Backbones that it is for.")
    methods: list[str] | None = Field(None, min_length=1, description="Methods that it is for.")
    settings: Choices = Field({}, description="Of the methods: a list of values, or a range of numbers.")
    backbone_settings: Choices = Field({}, description="Of the backbones; as above.")
    training: Choices = Field({}, description="Keys of `training`; as above.")


class Tune(Section):
    """How `fglbench tune` searches settings: by the validation score, on seeds that the study does not report."""

    seeds: list[int] = Field(min_length=1, description="Seeds of the search; none of the study's.")
    partition: str = Field(description="Partition scheme to search on.")
    clients: int = Field(description="Client count to search on.")
    trials: int = Field(20, ge=1, description="Settings tried for each dataset, backbone and method.")
    searches: list[Search] = Field(min_length=1, description="What is searched.")


class Study(Section):
    """A named set of cells with its tables and figures."""

    title: str = Field("Federated graph learning benchmark", description="Heading of the report.")
    notes: str = Field("", description="Shown in the report: what is open, what was tried.")
    datasets: Entries = Field(description="Datasets.")
    partitions: Entries = Field(description="Partition schemes.")
    clients: list[int] = Field(min_length=1, description="Client counts.")
    methods: Entries = Field(description="Methods.")
    backbones: Entries = Field([Entry(name="gcn")], description="Local models.")
    seeds: int | list[int] = Field(3, description="Number of seeds, counted from 0, or a list of seeds.")
    training: Training = Field(
        Training(),
        description="How clients train. Changed, in this order, by a grid, an entry of datasets, of backbones, "
        "`overrides`, and an entry of methods.",
    )
    grids: list[Grid] = Field(
        [], description="Which combinations are run, where not all of them: the union of these products."
    )
    overrides: list[Override] = Field([], description="Settings for some datasets, backbones or methods.")
    tuned: str | None = Field(
        None, description="YAML of settings found by `fglbench tune`, in workflow/studies/tuned/; null: defaults."
    )
    tune: Tune | None = Field(None, description="What `fglbench tune` searches.")
    protocol: Protocol = Field(Protocol(), description="What is measured.")
    reference: str | None = Field(None, description="CSV of printed numbers in workflow/studies/reference/.")
    tables: list[TableSettings] = Field(
        [TableSettings(name="accuracy", title="Test accuracy in percent.")], description="Tables to render."
    )
    figures: list[FigureSettings] = Field(
        [
            FigureSettings(name="accuracy-per-round", kind="accuracy_per_round", title="Test accuracy per round"),
            FigureSettings(
                name="accuracy-per-second", kind="accuracy_per_second", title="Test accuracy per training second"
            ),
            FigureSettings(
                name="accuracy-by-clients", kind="accuracy_by_clients", title="Test accuracy by number of clients"
            ),
            FigureSettings(name="label-heatmap", kind="label_heatmap", title="Labels per client"),
            FigureSettings(
                name="bytes-by-accuracy", kind="bytes_by_accuracy", title="Communication against test accuracy"
            ),
            FigureSettings(name="average-ranks", kind="average_ranks", title="Average ranks over datasets"),
        ],
        description="Figures to render.",
    )


Checked = TypeVar("Checked", bound=Study)


class Data(Section):
    """Where data comes from."""

    mirror: str | None = Field(None, description="Folder laid out like the raw folders of PyG; null: FGLBENCH_MIRROR.")
    download: bool = Field(
        True, description="Without a mirror: fetch raw files. false: cells of datasets that need files are not run."
    )


class Tracking(Section):
    """Tracking of runs with MLflow."""

    enabled: bool = Field(True, description="Import finished runs into MLflow.")
    uri: str | None = Field(None, description="Tracking URI; null: MLFLOW_TRACKING_URI, else SQLite under results/.")
    experiment: str | None = Field(None, description="Experiment; null: the study's name.")


class Components(Section):
    """Your own methods, backbones, partition schemes and datasets. A list instead of a mapping gives the `folders`."""

    folders: list[str] = Field([], description="Folders with their files.")
    trust: Trust = Field(
        "again",
        description="Where a file changed and its VERSION did not: what was made with the other one is made again, or "
        "(warn) kept with a warning.",
    )


class Jobs(Section):
    """How jobs run. These keys do not change any result."""

    seeds_per_job: int = Field(5, ge=1, le=50, description="Seeds of a cell that share one process.")
    jobs_per_card: int = Field(1, ge=1, le=16, description="Training jobs that may share a GPU on this machine.")
    chunk_clients: int | None = Field(None, ge=1, description="Clients trained at once; null: by memory_mb.")
    memory_mb: int | None = Field(None, ge=64, description="Memory a job may use for client chunks; null: no limit.")
    memory_limit_mb: int | None = Field(
        None, ge=256, description="Memory beyond which allocations of a training process fail; null: no limit."
    )
    train_timeout_min: float | None = Field(
        None,
        gt=0,
        description="Minutes that a seed may train before it is ended as timeout; null: no limit. Trials of "
        "searches have none.",
    )
    failures: Literal["retry", "keep"] = Field(
        "retry",
        description="Seeds that failed with an error: the workflow ends with an error and its next run tries them "
        "again (retry), or they are results as other outcomes are (keep).",
    )
    train_mem_mb: int = Field(4000, ge=100, description="Memory that a training job asks of the scheduler.")
    train_runtime_min: int = Field(120, ge=1, description="Minutes that a training job asks of the scheduler.")


class Config(Study):
    """The shipped `config.yaml` and every file given by `--configfile`."""

    studies: list[str] = Field([], description="Names of study files to run besides the grid above.")
    data: Data = Field(Data(), description="Where data comes from.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: a GPU where there is one.")
    mode: Literal["deterministic", "fast"] = Field(
        "deterministic",
        description="On a GPU: full precision and algorithms that repeat, or TF32 and the fastest ones.",
    )
    tracking: Tracking = Field(Tracking(), description="MLflow.")
    jobs: Jobs = Field(Jobs(), description="How jobs run.")
    published: Literal["studies", "all", "none"] = Field(
        "studies",
        description="Which cells are taken from the archived records of results/published (or FGLBENCH_PUBLISHED) "
        "and not run: those of study files, those of this file as well, or none.",
    )
    only_finished: bool = Field(
        False, description="Show the cells that are finished or archived; run and track nothing."
    )
    components: Annotated[Components, BeforeValidator(_components, json_schema_input_type=list[str] | Components)] = (
        Field(
            Components(), description="Your own methods, backbones, schemes and datasets: a list of folders, or keys."
        )
    )
    results: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")] = Field(
        "results", description="Folder for everything that is made, below the working directory."
    )
