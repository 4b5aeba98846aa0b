"""Specifications: the fully resolved settings and versions of a cell, one mapping for each part.

They are the content of hashes, of `run.json` and of jobs' parameters, so they are plain mappings that JSON can hold.
`config.expand` makes them. A key that is not required is left out where its value is the default, because the paths of
older results do not contain it.
"""

from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic needs this one in Python 3.11


class ResolvedDataset(TypedDict):
    """Specification of a dataset.

    Attributes:
        name: of the dataset.
        version: of its graph.
        settings: of a generated dataset; empty for a stored one.
        counts: numbers of nodes, edges, features and classes, of a user's own dataset.
        content_hash: hash of the graph, of a user's own dataset.
    """

    name: str
    version: int
    settings: dict[str, Any]
    counts: NotRequired[dict[str, Any]]
    content_hash: NotRequired[str | None]


class ResolvedTask(TypedDict):
    """Specification of a task.

    Attributes:
        name: of the task.
        version: of the task.
        settings: of the task.
    """

    name: str
    version: int
    settings: dict[str, Any]


class ResolvedPartition(TypedDict):
    """Specification of a partition with its split.

    Attributes:
        dataset: that is partitioned.
        scheme: name of the partition scheme.
        version: of the scheme.
        settings: of the scheme.
        clients: number of clients.
        split: settings of the split into roles.
        task: the task, if it draws its own roles.
        split_version: of the stage.
    """

    dataset: ResolvedDataset
    scheme: str
    version: int
    settings: dict[str, Any]
    clients: int
    split: dict[str, Any]
    task: NotRequired[ResolvedTask]
    split_version: int


class ResolvedPreprocessing(TypedDict):
    """Specification of the output of preprocessing; the first five keys are those of `settings.Propagation`.

    Attributes:
        r: kernel coefficient of the operator.
        hops: number of propagation steps.
        self_loops: False, if the operator has none.
        combine: which propagated features are read, if not the last ones.
        fill: False, if sparse features are not propagated.
        propagate: False, if the method changes the graph, so that nothing can be propagated before training.
        features: value of `protocol.features`.
        setting: "inductive", if the protocol is inductive.
        version: of the stage.
    """

    r: float
    hops: int
    self_loops: NotRequired[bool]
    combine: NotRequired[str | list[float]]
    fill: NotRequired[bool]
    propagate: NotRequired[bool]
    features: str
    setting: NotRequired[str]
    version: int


class ResolvedBackbone(TypedDict):
    """Specification of a backbone.

    Attributes:
        name: of the backbone.
        version: of the backbone.
        settings: of the backbone, and as `sampler_settings` those of its sampler.
        sampler_version: of the sampler, if the backbone has one.
    """

    name: str
    version: int
    settings: dict[str, Any]
    sampler_version: NotRequired[int]


class ResolvedMethod(TypedDict):
    """Specification of a method with its backbone and training.

    Attributes:
        method: name of the method.
        version: of the method.
        aggregation_version: of the method that aggregates for this one, if there is one.
        settings: of the method, and as `aggregation_settings` those of the method that aggregates.
        backbone: the backbone.
        prepared: the output of preprocessing that the backbone reads.
        training: keyword arguments of `federation.schedule.Schedule`, with `ldp` as a mapping.
        evaluate: which parameters are evaluated, see `Schedule`.
        mean: the client mean that selects a round.
        global_test: the graph of the global test, if there is one.
        logits: True, if logits are stored.
        task: the task, if it is not the default one.
        engine_version: of the engine.
    """

    method: str
    version: int
    aggregation_version: NotRequired[int]
    settings: dict[str, Any]
    backbone: ResolvedBackbone
    prepared: ResolvedPreprocessing
    training: dict[str, Any]
    evaluate: str
    mean: str
    global_test: NotRequired[str]
    logits: NotRequired[bool]
    task: NotRequired[ResolvedTask]
    engine_version: int


class Specs(TypedDict):
    """All specifications of a cell.

    Attributes:
        dataset: the dataset.
        partition: the partition.
        prepared: the output of preprocessing.
        method: the method.
    """

    dataset: ResolvedDataset
    partition: ResolvedPartition
    prepared: ResolvedPreprocessing
    method: ResolvedMethod
