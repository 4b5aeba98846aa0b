"""Results of a training run: its history, the predictions of the readings, and the parameters to keep."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.engine.local import Trained
from fglbench.federation.costs import PhaseCosts
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.tasks.base import Task

MOST_CLIENTS_IN_EVERY_ROUND = 100  # mixing matrices of 100 clients in 100 rounds take 4 MB


@dataclass
class Result:
    """Result of a finished or diverged run of R scored rounds on C clients with N nodes.

    Attributes:
        state: "ok" or "diverged".
        diverged_round: number of scored rounds before the run diverged, which is the 0-based round; None if ok.
        history: of the scored rounds `round` [R] int64; `phase` [R] str; `train_seconds` [R] float64, cumulative,
            without evaluation; `train_loss` [R, C] float32, nan for a client that did not train; `total_loss` [R, C]
            float32, if a model or method adds terms to the loss; arrays of the task such as `val_correct` [R, C];
            `bytes_up`, `bytes_down` [R] int64, cumulative. Of each phase that is not scored `<phase>_loss` [rounds, C]
            float32.
        phases: rounds and costs of each phase.
        predictions: for each reading ("val", "last", "test") the predictions [N, ...] of the task; empty unless ok.
        rounds: the round of each reading.
        weights: for each reading the weights [C] float32 of the clients in that round; only if the mean over clients is
            "weighted".
        mixing: `mixing` [M, C, C] float32 and `rounds` [M] int64, of the rounds in which clients received different
            means; with more than `MOST_CLIENTS_IN_EVERY_ROUND` clients only the rounds of the readings.
        scores: outputs of `engine.final`: logits and the global test.
        parameters: for each reading the parameters [C, ...] of its round by name; empty unless ok.
        server: parameters that only the server holds, [...] each.
        graphs: for each reading the client graphs that were scored, which a method may have changed; empty unless ok.
        train_seconds: seconds of training, without evaluation.
        eval_seconds: seconds of evaluation.
        server_seconds: part of `train_seconds` from the uploads to the server's answer, after the method's
            `server_update`.
    """

    state: str
    diverged_round: int | None
    history: dict[str, np.ndarray]
    phases: list[PhaseCosts] = field(default_factory=list)
    predictions: dict[str, np.ndarray] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    mixing: dict[str, np.ndarray] = field(default_factory=dict)
    scores: dict[str, np.ndarray] = field(default_factory=dict)
    parameters: dict[str, Parameters] = field(default_factory=dict)
    server: Parameters = field(default_factory=dict)
    graphs: dict[str, Federation] = field(default_factory=dict)
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    server_seconds: float = 0.0


class Recorder:
    """Recorder of rounds, which selects the rounds of the readings and keeps their results.

    The reading `val` is the earliest round with the best validation score, or the last round if no client has
    validation targets. The reading `test` is the earliest round with the best test score, or the last round if no
    client has test targets. Both use the same mean over clients.

    Args:
        federation: the graphs that are scored.
        task: computes the scores.
        mean: mean over clients: "pooled", "macro", "nodes" or "weighted", which selects as "pooled".

    Attributes:
        validation: validation score of the last scored round; nan if there is none.
        client_validation: [C] validation score of each client in that round; nan if there is none.
        train_seconds: seconds of training so far.
        eval_seconds: seconds of evaluation so far.
        server_seconds: seconds of the server so far, which are part of `train_seconds`.
    """

    def __init__(self, federation: Federation, task: Task, mean: str):
        self._federation, self._task, self._mean = federation, task, mean
        self._sizes = {role: task.count(federation, role) for role in ("val", "test")}
        self._rows: list[dict[str, Any]] = []
        self._unscored: dict[str, list[np.ndarray]] = {}
        self._best = {"val": -math.inf, "test": -math.inf}
        self._result = Result("ok", None, {})
        self._up = self._down = 0
        self._mixing: dict[int, np.ndarray] = {}
        self.validation = math.nan
        self.client_validation = np.full(federation.num_clients, math.nan)
        self.train_seconds = self.eval_seconds = self.server_seconds = 0.0

    @property
    def rounds(self) -> int:
        """Number of scored rounds so far, which is the 0-based number of the next one."""
        return len(self._rows)

    @contextmanager
    def training(self, synchronise: Callable[[], None]) -> Iterator[None]:
        """Count the time inside this context as training.

        Args:
            synchronise: waits for the device.

        Yields:
            None.
        """
        began = time.perf_counter()
        yield
        synchronise()
        self.train_seconds += time.perf_counter() - began

    def sent(self, up: int, down: int) -> None:
        """Count transferred bytes.

        Args:
            up: bytes from the clients to the server.
            down: bytes from the server to the clients.
        """
        self._up += up
        self._down += down

    def begin(self, phase: str) -> None:
        """Begin a phase; all costs from here on belong to it.

        Args:
            phase: name of the phase.
        """
        start = PhaseCosts(
            name=phase, rounds=0, train_seconds=self.train_seconds, bytes_up=self._up, bytes_down=self._down
        )
        self._result.phases.append(start)

    def end(self) -> None:
        """End the phase and compute its seconds and bytes."""
        phase = self._result.phases[-1]
        phase["train_seconds"] = self.train_seconds - phase["train_seconds"]
        phase["bytes_up"] = self._up - phase["bytes_up"]
        phase["bytes_down"] = self._down - phase["bytes_down"]

    def add(
        self,
        predictions: np.ndarray,
        parameters: Parameters,
        trained: Trained,
        mixing: Tensor | None = None,
        weights: Tensor | None = None,
        graphs: Federation | None = None,
    ) -> None:
        """Record a scored round, and keep its predictions if they are the best so far.

        Args:
            predictions: [N, ...] predictions of the task.
            parameters: [C, ...] the parameters that were scored.
            trained: results of local training.
            mixing: [C, C] weights of the aggregation; None if all clients received the same mean.
            weights: [C] weights of the clients in the aggregation; None if no client trained yet.
            graphs: the client graphs that were scored; None for those of the recorder.
        """
        number, task, federation = self.rounds, self._task, self._federation
        arrays = {role: task.round_scores(predictions, federation, role) for role in self._sizes}
        scores = {role: float(task.score(arrays[role], role, self._sizes[role], self._mean)) for role in arrays}
        self.validation = scores["val"]
        self.client_validation = self._of_clients(arrays["val"])
        row = {"train_seconds": self.train_seconds, "bytes_up": self._up, "bytes_down": self._down}
        losses = {"train_loss": trained.losses, "total_loss": trained.totals}
        self._count_round()
        self._rows.append({"phase": self._phase, **row, **losses, **arrays["val"], **arrays["test"]})
        readings = ["last"]
        for role, score in scores.items():
            if math.isnan(score) or score > self._best[role]:
                self._best[role] = score
                readings.append(role)
        for reading in readings:
            self._result.predictions[reading] = predictions
            self._result.rounds[reading] = number
            self._result.parameters[reading] = parameters
            self._result.graphs[reading] = graphs or federation
            if self._mean == "weighted" and weights is not None:
                self._result.weights[reading] = weights.cpu().numpy()
        self._keep_mixing(number, mixing)

    def validation_of(self, predictions: np.ndarray) -> np.ndarray:
        """Compute the clients' validation scores of predictions without recording them.

        Args:
            predictions: [N, ...] predictions of the task.

        Returns:
            [C]; nan for a client without validation targets.
        """
        return self._of_clients(self._task.round_scores(predictions, self._federation, "val"))

    def _of_clients(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return self._task.client_scores(arrays, "val", self._sizes["val"])

    def add_unscored(self, losses: np.ndarray) -> None:
        """Record a round of a phase that is not scored.

        Args:
            losses: [C] float32 losses of local training.
        """
        self._unscored.setdefault(self._phase, []).append(losses)
        self._count_round()

    @property
    def _phase(self) -> str:
        return self._result.phases[-1]["name"]

    def _count_round(self) -> None:
        self._result.phases[-1]["rounds"] += 1

    def _keep_mixing(self, number: int, mixing: Tensor | None) -> None:
        if mixing is not None:
            self._mixing[number] = mixing.detach().to("cpu", torch.float32).numpy()
        if self._federation.num_clients > MOST_CLIENTS_IN_EVERY_ROUND:
            read = self._result.rounds.values()
            self._mixing = {round: matrix for round, matrix in self._mixing.items() if round in read}

    def finished(self, server: Parameters | None = None) -> Result:
        """Return the result of a run that reached its last round.

        Args:
            server: parameters that only the server holds; None for none.

        Returns:
            The result with state "ok".
        """
        self._result.server = server or {}
        return self._close()

    def diverged(self) -> Result:
        """Return the result of a run that diverged in the current round.

        Returns:
            The result with state "diverged": its history and costs, without predictions, parameters and graphs.
        """
        self.end()
        result = self._close()
        result.state, result.diverged_round = "diverged", self.rounds
        result.predictions, result.rounds, result.parameters, result.graphs, result.weights = {}, {}, {}, {}, {}
        return result

    def _close(self) -> Result:
        result, clients = self._result, self._federation.num_clients
        columns = {name: np.asarray([row[name] for row in self._rows]) for name in (self._rows or [{}])[0]}
        if not self._rows:
            columns = {name: np.zeros(0, dtype=np.int64) for name in ("bytes_up", "bytes_down")}
            columns |= {"train_seconds": np.zeros(0), "train_loss": np.zeros((0, clients), dtype=np.float32)}
        elif np.array_equal(columns["total_loss"], columns["train_loss"], equal_nan=True):
            del columns["total_loss"]  # neither model nor method added a term
        result.history = {"round": np.arange(len(self._rows)), **columns}
        result.history |= {f"{phase}_loss": np.stack(rows) for phase, rows in self._unscored.items()}
        if self._mixing:
            rounds = np.asarray(list(self._mixing), dtype=np.int64)
            result.mixing = {"mixing": np.stack(list(self._mixing.values())), "rounds": rounds}
        result.train_seconds, result.eval_seconds = self.train_seconds, self.eval_seconds
        result.server_seconds = self.server_seconds
        return result
