"""What a training run leaves behind: its history, the predictions of the readings, and the parameters to keep."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fglbench.evaluation.metrics import shares
from fglbench.federation.federation import TEST, TRAIN, VAL, Federation
from fglbench.federation.parameters import Parameters

MOST_CLIENTS_IN_EVERY_ROUND = 100  # 100 rounds of as many clients are 4 MB of mixing matrices


@dataclass
class Result:
    """A finished or diverged run of R rounds on C clients with N nodes.

    Attributes:
        state: "ok" or "diverged".
        diverged_round: the round that diverged, or None.
        history: `round` [R] int64; `train_seconds` [R] float64, cumulative, without evaluation; `train_loss` [R, C]
            float32, nan where a client sat out; `val_correct`, `test_correct` [R, C] int64; `bytes_up`, `bytes_down`
            [R] int64, cumulative.
        predictions: per reading ("val", "last", "test") [N] int32 class ids; empty unless ok.
        rounds: the round of each reading.
        mixing: `mixing` [M, C, C] float32 and `rounds` [M] int64, of the rounds whose clients received different means;
            of more than `MOST_CLIENTS_IN_EVERY_ROUND` clients only the rounds of the readings.
        scores: what else is scored, by `federation.final`.
        parameters: per reading the stacked parameters of its round; empty unless ok.
        graphs: per reading the client graphs they were scored on, which a method may have changed; empty unless ok.
        train_seconds, eval_seconds: of the loop.
        server_seconds: the part of `train_seconds` from the uploads to the end of the method's `after`.
    """

    state: str
    diverged_round: int | None
    history: dict[str, np.ndarray]
    predictions: dict[str, np.ndarray] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    mixing: dict[str, np.ndarray] = field(default_factory=dict)
    scores: dict[str, np.ndarray] = field(default_factory=dict)
    parameters: dict[str, Parameters] = field(default_factory=dict)
    graphs: dict[str, Federation] = field(default_factory=dict)
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    server_seconds: float = 0.0


class Recorder:
    """Counts, selects and keeps, round by round.

    The round of reading `val` is the earliest with the best validation accuracy (where no client has validation
    nodes, the last round); `test` is the earliest with the best test accuracy; both by the same client mean.
    """

    def __init__(self, federation: Federation, mean: str):
        self._federation = federation
        self._mean = mean
        self._share = None if mean != "nodes" or federation.nodes is None else shares(federation.nodes)
        self._sizes = {role: federation.count(role) for role in (TRAIN, VAL, TEST)}
        self._rows: list[tuple[int, float, np.ndarray, np.ndarray, np.ndarray, int, int]] = []
        self._best = {"val": -math.inf, "test": -math.inf}
        self._result = Result("ok", None, {})
        self._up = self._down = 0
        self._mixing: dict[int, np.ndarray] = {}
        self.train_seconds = self.eval_seconds = self.server_seconds = 0.0

    def sent(self, up: int, down: int) -> None:
        """Counts bytes."""
        self._up += up
        self._down += down

    def score(self, predictions: np.ndarray, role: int) -> tuple[np.ndarray, float]:
        """Correct nodes per client [C] and the accuracy by this recorder's mean (nan where nobody has such nodes)."""
        federation, sizes = self._federation, self._sizes[role]
        right = (federation.role == role) & (predictions == federation.labels)
        correct = np.bincount(federation.client_of[right], minlength=federation.num_clients)
        if not sizes.any():
            return correct, math.nan
        if self._share is not None:  # every node once
            return correct, float(self._share[right].sum() / self._share[federation.role == role].sum())
        if self._mean in ("pooled", "nodes"):
            return correct, float(correct.sum() / sizes.sum())
        present = sizes > 0
        return correct, float(np.mean(correct[present] / sizes[present]))

    def add(
        self,
        number: int,
        predictions: np.ndarray,
        parameters: Parameters,
        losses: np.ndarray,
        sent_up: int,
        sent_down: int,
        mixing: Tensor | None = None,
        graphs: Federation | None = None,
    ) -> float:
        """Records a round and keeps its predictions where they are the best so far; returns validation accuracy."""
        self.sent(sent_up, sent_down)
        val_correct, validation = self.score(predictions, VAL)
        test_correct, test = self.score(predictions, TEST)
        self._rows.append((number, self.train_seconds, losses, val_correct, test_correct, self._up, self._down))
        readings = ["last"]
        if math.isnan(validation) or validation > self._best["val"]:
            self._best["val"] = validation
            readings.append("val")
        if math.isnan(test) or test > self._best["test"]:
            self._best["test"] = test
            readings.append("test")
        for reading in readings:
            self._result.predictions[reading] = predictions
            self._result.rounds[reading] = number
            self._result.parameters[reading] = parameters
            self._result.graphs[reading] = graphs or self._federation
        self._keep_mixing(number, mixing)
        return validation

    def _keep_mixing(self, number: int, mixing: Tensor | None) -> None:
        if mixing is not None and mixing.dim() == 2:  # a common row says no more than who trained
            self._mixing[number] = mixing.detach().to("cpu", torch.float32).numpy()
        if self._federation.num_clients > MOST_CLIENTS_IN_EVERY_ROUND:
            read = self._result.rounds.values()
            self._mixing = {round: matrix for round, matrix in self._mixing.items() if round in read}

    def finished(self) -> Result:
        """The result of a run that reached its last round."""
        return self._close()

    def diverged(self, number: int) -> Result:
        """The result of a run stopped in round `number`: its history, and nothing that could be scored."""
        result = self._close()
        result.state, result.diverged_round = "diverged", number
        result.predictions, result.rounds, result.parameters, result.graphs = {}, {}, {}, {}
        return result

    def _close(self) -> Result:
        clients = self._federation.num_clients
        names = ["round", "train_seconds", "train_loss", "val_correct", "test_correct", "bytes_up", "bytes_down"]
        types = [np.int64, np.float64, np.float32, np.int64, np.int64, np.int64, np.int64]
        columns = zip(*self._rows, strict=True) if self._rows else [[] for _ in names]
        self._result.history = {
            name: np.asarray(column, dtype=kind).reshape((-1, clients) if name in _PER_CLIENT else -1)
            for name, kind, column in zip(names, types, columns, strict=True)
        }
        if self._mixing:
            rounds = np.asarray(list(self._mixing), dtype=np.int64)
            self._result.mixing = {"mixing": np.stack(list(self._mixing.values())), "rounds": rounds}
        self._result.train_seconds, self._result.eval_seconds = self.train_seconds, self.eval_seconds
        self._result.server_seconds = self.server_seconds
        return self._result


_PER_CLIENT = {"train_loss", "val_correct", "test_correct"}
