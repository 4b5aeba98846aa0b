"""What a training run leaves behind: its history, the predictions of the readings, and the parameters to keep."""

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
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.tasks.base import Task

MOST_CLIENTS_IN_EVERY_ROUND = 100  # 100 rounds of as many clients are 4 MB of mixing matrices


@dataclass
class Result:
    """A finished or diverged run of R rounds on C clients with N nodes.

    Attributes:
        state: "ok" or "diverged".
        diverged_round: the round that diverged, or None.
        history: of the scored rounds `round` [R] int64; `phase` [R] str; `train_seconds` [R] float64, cumulative,
            without evaluation; `train_loss` [R, C] float32, nan where a client sat out, and where a method adds to it
            `total_loss`; what the task keeps, such as `val_correct`, [R, C]; `bytes_up`, `bytes_down` [R] int64,
            cumulative. Of a phase that is not scored `<phase>_loss` [rounds, C].
        phases: of each its name, rounds, seconds and bytes.
        predictions: per reading ("val", "last", "test") [N, ...] what the task predicts; empty unless ok.
        rounds: the round of each reading.
        weights: per reading [C] float32 what clients counted by in that round; only where the mean is weighted by it.
        mixing: `mixing` [M, C, C] float32 and `rounds` [M] int64, of the rounds whose clients received different means;
            of more than `MOST_CLIENTS_IN_EVERY_ROUND` clients only the rounds of the readings.
        scores: what else is scored, by `engine.final`.
        parameters: per reading the stacked parameters of its round; empty unless ok.
        server: parameters of the server alone, [...] each.
        graphs: per reading the client graphs they were scored on, which a method may have changed; empty unless ok.
        train_seconds, eval_seconds: of the loop.
        server_seconds: the part of `train_seconds` from the uploads to the end of the method's `server_update`.
    """

    state: str
    diverged_round: int | None
    history: dict[str, np.ndarray]
    phases: list[dict[str, Any]] = field(default_factory=list)
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
    """Counts, selects and keeps, round by round.

    The round of reading `val` is the earliest with the best validation score (where no client has validation targets,
    the last round); `test` is the earliest with the best test score; both by the same client mean.

    Args:
        federation: the graphs that are scored.
        task: what is scored, and how.
        mean: over clients, "pooled", "macro", "nodes" or "weighted", which selects as "pooled".

    Attributes:
        validation: the last round's score; nan where there is none.
        client_validation: [C] the same of each client.
        train_seconds, eval_seconds, server_seconds: so far.
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
        """Scored rounds so far: the 0-based number of the next one."""
        return len(self._rows)

    @contextmanager
    def training(self, synchronise: Callable[[], None]) -> Iterator[None]:
        """What happens inside counts as training."""
        began = time.perf_counter()
        yield
        synchronise()
        self.train_seconds += time.perf_counter() - began

    def sent(self, up: int, down: int) -> None:
        """Counts bytes."""
        self._up += up
        self._down += down

    def begin(self, phase: str) -> None:
        """A phase begins; what is counted from here on is its own."""
        start = {"train_seconds": self.train_seconds, "bytes_up": self._up, "bytes_down": self._down}
        self._result.phases.append({"name": phase, "rounds": 0, **start})

    def end(self) -> None:
        """The phase ends."""
        phase = self._result.phases[-1]
        now = {"train_seconds": self.train_seconds, "bytes_up": self._up, "bytes_down": self._down}
        phase |= {name: value - phase[name] for name, value in now.items()}

    def add(
        self,
        predictions: np.ndarray,
        parameters: Parameters,
        trained: Trained,
        mixing: Tensor | None = None,
        weights: Tensor | None = None,
        graphs: Federation | None = None,
    ) -> None:
        """Records a round and keeps its predictions where they are the best so far."""
        number, task, federation = self.rounds, self._task, self._federation
        kept = {role: task.round_scores(predictions, federation, role) for role in self._sizes}
        found = {role: float(task.score(kept[role], role, self._sizes[role], self._mean)) for role in kept}
        self.validation = found["val"]
        self.client_validation = self._of_clients(kept["val"])
        row = {"train_seconds": self.train_seconds, "bytes_up": self._up, "bytes_down": self._down}
        losses = {"train_loss": trained.losses, "total_loss": trained.totals}
        self._count_round()
        self._rows.append({"phase": self._phase, **row, **losses, **kept["val"], **kept["test"]})
        readings = ["last"]
        for role, score in found.items():
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
        """[C] the clients' validation scores of other predictions; nothing is recorded."""
        return self._of_clients(self._task.round_scores(predictions, self._federation, "val"))

    def _of_clients(self, kept: Mapping[str, np.ndarray]) -> np.ndarray:
        return self._task.client_scores(kept, "val", self._sizes["val"])

    def add_unscored(self, losses: np.ndarray) -> None:
        """Records a round of a phase that is not scored."""
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
        """The result of a run that reached its last round, with what the server alone holds."""
        self._result.server = server or {}
        return self._close()

    def diverged(self) -> Result:
        """The result of a run stopped in the round that comes next: its history, and nothing that could be scored."""
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
            del columns["total_loss"]  # nothing was added to the task's own
        result.history = {"round": np.arange(len(self._rows)), **columns}
        result.history |= {f"{phase}_loss": np.stack(rows) for phase, rows in self._unscored.items()}
        if self._mixing:
            rounds = np.asarray(list(self._mixing), dtype=np.int64)
            result.mixing = {"mixing": np.stack(list(self._mixing.values())), "rounds": rounds}
        result.train_seconds, result.eval_seconds = self.train_seconds, self.eval_seconds
        result.server_seconds = self.server_seconds
        return result
