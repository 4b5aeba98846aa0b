"""Outputs that are computed after training from the parameters of each reading: logits, and the global test."""

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone
from fglbench.engine.evaluation import Evaluator
from fglbench.engine.record import Result
from fglbench.federation import parameters as stacked
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.partition.ratios import TEST
from fglbench.tasks.base import Task


def reading_logits(
    result: Result,
    backbone: Backbone,
    task: Task,
    seed: int,
    device: torch.device | str = "cpu",
    chunk_clients: int | None = None,
) -> dict[str, np.ndarray]:
    """Compute the logits of every client's model on all nodes of its own graph, for each reading.

    Args:
        result: result of a run with state "ok".
        backbone: the model.
        task: task of the cell.
        seed: seed of the cell.
        device: device of the computation.
        chunk_clients: number of clients evaluated at once; None for all.

    Returns:
        `<reading>_logits` [N, outputs] float32, one row for each original node.
    """
    return {
        f"{reading}_logits": Evaluator(result.graphs[reading], backbone, task, seed, device, chunk_clients).logits(
            parameters
        )
        for reading, parameters in result.parameters.items()
    }


def global_test(
    result: Result,
    tested: Federation,
    backbone: Backbone,
    task: Task,
    seed: int,
    logits: bool,
    device: torch.device | str = "cpu",
) -> dict[str, np.ndarray]:
    """Predict the same M test nodes with every client's model, which measures how it generalises.

    Sources: FedEgo, section 5.3.2 (a held-out graph); Fed-GALA, section 4.2.1 (the whole graph).

    Args:
        result: result of a run with state "ok".
        tested: the graph of the global test as a federation of one client.
        backbone: the model.
        task: computes predictions from the outputs of the model.
        seed: seed of the cell.
        logits: whether to return the logits as well.
        device: device of the computation.

    Returns:
        `<reading>_global` [G, M, ...]: predictions of the test nodes in ascending order. With `logits` also
        `<reading>_global_logits` [G, M, outputs] float32. G is 1 if all clients hold the same parameters, otherwise the
        number of clients.
    """
    evaluator = Evaluator(tested, backbone, task, seed, device)
    nodes = tested.role == TEST
    arrays = {}
    for reading, parameters in result.parameters.items():
        models = range(1 if _all_alike(parameters) else len(next(iter(parameters.values()))))
        by_model = [stacked.take(parameters, slice(model, model + 1)) for model in models]
        arrays[f"{reading}_global"] = np.stack([evaluator.predictions(model)[nodes] for model in by_model])
        if logits:
            arrays[f"{reading}_global_logits"] = np.stack([evaluator.logits(model)[nodes] for model in by_model])
    return arrays


def _all_alike(parameters: Parameters) -> bool:
    def alike(tensor: Tensor) -> bool:
        return tensor.stride(0) == 0 or bool((tensor == tensor[:1]).all())

    return all(alike(tensor) for tensor in parameters.values())
