"""Roles of nodes: training, validation (to select the round) and test.

A role is fixed once for each node of the whole graph, before clients get their nodes. So no client trains on a node
that another client tests, even if clients share nodes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from pydantic import model_validator

from fglbench.errors import PartitionError
from fglbench.partition.ratios import NONE, TEST, TRAIN, VAL, draw_at_ratios
from fglbench.seeding import numpy_stream
from fglbench.settings import Field, Section

if TYPE_CHECKING:
    from fglbench.partition.base import Assignment

ROLES = {"train": TRAIN, "val": VAL, "test": TEST}

Counts: TypeAlias = Mapping[str, np.ndarray]
"""For each of train, val and test: [C] int64, the number of targets of each client."""


class SplitSettings(Section):
    """How nodes get their roles."""

    kind: Literal["ratios", "per_class", "public", "file"] = Field(
        "ratios",
        description="`ratios`: drawn per client at the ratios below. `per_class`: numbers of nodes, drawn on the whole "
        "graph. `public`: the dataset's own masks. `file`: those that the file of the scheme `file` has.",
    )
    train: float = Field(0.2, gt=0, le=1, description="`ratios`: fraction of a client's labelled nodes to train on.")
    val: float = Field(0.4, ge=0, le=1, description="`ratios`: fraction to choose the round by.")
    test: float = Field(0.4, gt=0, le=1, description="`ratios`: fraction to test.")
    stratify: bool = Field(
        True,
        description="`ratios`: share each role among the classes of a client by their sizes, every class with a "
        "training node as far as they go; false: shuffle the client's nodes.",
    )
    train_per_class: int | None = Field(
        None, ge=1, description="`per_class`: training nodes of each class; a class with fewer nodes gives all."
    )
    val_nodes: int | None = Field(
        None, ge=0, description="`per_class`: nodes to choose the round by, drawn from what is left."
    )
    test_nodes: int | None = Field(None, ge=1, description="`per_class`: nodes to test; null: all that is left.")
    held_out: float | None = Field(
        None, gt=0, lt=1, description="Fraction of all nodes that no client gets; null: every node goes to a client."
    )
    empty: Literal["keep", "error"] = Field(
        "keep",
        description="A client without training, validation or test nodes: kept (it does not train, or is left out of "
        "that mean, and the partition card names it), or an error.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "SplitSettings":
        total = self.train + self.val + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train {self.train:g} + val {self.val:g} + test {self.test:g} is {total:g}; it must be 1")
        for name in ("train_per_class", "val_nodes"):
            if self.kind == "per_class" and getattr(self, name) is None:
                raise ValueError(f"kind per_class needs '{name}', such as {PER_CLASS[name]}")
        for name in PER_CLASS:
            if self.kind in ("ratios", "file") and getattr(self, name) is not None:
                raise ValueError(f"'{name}' applies only to kind per_class; set that kind, or remove '{name}'")
        return self

    def spec(self) -> dict[str, Any]:
        """Return the settings that decide the roles, as cell identities contain them.

        Identities of older versions do not contain `stratify`, and contain the ratios for kind public. Both rules stay,
        so that those identities remain valid.

        Returns:
            The settings by name, without those that are None or that the kind does not read.
        """
        ratios = {"train", "val", "test"}
        unread = {
            "ratios": {*PER_CLASS},
            "per_class": ratios,
            "public": {*PER_CLASS},
            "file": {*PER_CLASS} | ratios,
        }[self.kind]
        if self.stratify or self.kind != "ratios":
            unread |= {"stratify"}
        return self.model_dump(exclude_none=True, exclude=unread)


PER_CLASS = {"train_per_class": 20, "val_nodes": 500, "test_nodes": 1000}
"""The settings of kind per_class, with the values of the public split of Cora (Yang et al., ICML 2016)."""

OF_ANY_TASK = ("held_out", "empty")
"""The settings that also apply to tasks that draw their own roles."""


def without_node_roles(split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the split settings that a task with its own roles uses.

    Args:
        split: split settings by name.

    Returns:
        The settings of `OF_ANY_TASK` among them.
    """
    return {name: split[name] for name in OF_ANY_TASK if name in split}


def assign_roles(
    labels: np.ndarray,
    assignment: "Assignment",
    settings: SplitSettings,
    seed: int,
    dataset: str,
    scheme: str,
    masks: Mapping[str, np.ndarray],
) -> list[np.ndarray]:
    """Assign a role to every node of every client; a node has the same role at all clients that hold it.

    With `ratios`, the labelled nodes of each client are split separately: those that it owns if nodes have owners;
    otherwise `draw_at_ratios` also splits the nodes that several clients hold. With `per_class`, the whole graph is
    split once (see `draw_per_class`), in the same way for all schemes and numbers of clients. Held-out clients have
    test nodes only: all labelled nodes with `ratios`, the test nodes of the split with other kinds.

    Args:
        labels: [num_nodes] int64; -1: the node has no label and gets no role.
        assignment: the nodes that each client holds.
        settings: kind, ratios and numbers.
        seed: the cell's seed.
        dataset: its name, part of the name of the random stream and of messages.
        scheme: its name, part of the name of the random stream and of messages.
        masks: the dataset's official masks by name, each [num_nodes] bool, for `public`.

    Returns:
        For each client an int8 array aligned with its part: 0 none, 1 train, 2 val, 3 test.

    Raises:
        PartitionError: there are no masks, masks contradict each other, the file has no roles, or there are fewer
            labelled nodes than requested.
    """
    parts = assignment.parts
    unseen = [parts[client] for client in assignment.held_out_clients]
    where = f"dataset '{dataset}', scheme '{scheme}', {len(parts)} clients"
    if settings.kind == "ratios":
        stream = numpy_stream(seed, "split", dataset, scheme, len(parts))
        owned = [nodes for client, nodes in enumerate(assignment.owned) if client not in assignment.held_out_clients]
        ratios = (settings.train, settings.val, settings.test)
        role = draw_at_ratios(labels, owned, ratios, stream, stratify=settings.stratify)
        for nodes in unseen:
            role[nodes] = np.where(labels[nodes] >= 0, TEST, NONE)
    else:
        if settings.kind == "public":
            role = _public(labels, masks, dataset)
        elif settings.kind == "per_class":
            role = draw_per_class(labels, settings, numpy_stream(seed, "split per class", dataset), dataset)
        elif assignment.roles is None:
            raise PartitionError(
                f"{where}: split.kind 'file' needs the scheme 'file' and a partition file with roles. Add roles to the "
                "file, or use the kind 'ratios'."
            )
        else:
            role = np.where(labels >= 0, assignment.roles, NONE).astype(np.int8)
        for nodes in unseen:
            role[nodes] = np.where(role[nodes] == TEST, TEST, NONE)
    roles = [role[nodes] for nodes in parts]
    check_roles(np.concatenate(parts), np.concatenate(roles))
    return roles


def refuse_empty(counts: Counts, held_out: Sequence[int], where: str) -> None:
    """Raise an error if a client lacks a role, for the policy `empty: error`.

    Args:
        counts: number of targets of each client, by role.
        held_out: clients that are tested only; they need no training and validation targets.
        where: start of the message.

    Raises:
        PartitionError: a client lacks a role; the message names it.
    """
    without = clients_without(counts)
    lacking = {
        name: [client for client in clients if name == "test" or client not in held_out]
        for name, clients in without.items()
    }
    if any(lacking.values()):
        problems = ", ".join(f"no {name} targets at clients {clients}" for name, clients in lacking.items() if clients)
        raise PartitionError(f"{where}: {problems}. Use fewer clients, other ratios, or the policy 'empty: keep'.")


def held_out_nodes(num_nodes: int, fraction: float | None) -> int:
    """Return the number of nodes to hold out.

    Args:
        num_nodes: of the graph.
        fraction: of all nodes; None: hold out none.

    Returns:
        0 without a fraction; otherwise the rounded number, at least 1 and at most num_nodes - 1.
    """
    return 0 if fraction is None else min(max(1, round(fraction * num_nodes)), num_nodes - 1)


def draw_held_out(num_nodes: int, fraction: float | None, seed: int, dataset: str) -> np.ndarray:
    """Draw the nodes that no client gets; they are the same for every scheme and number of clients at a seed.

    Args:
        num_nodes: of the graph.
        fraction: of all nodes; None: hold out none.
        seed: the cell's seed.
        dataset: its name, part of the name of the random stream.

    Returns:
        Ascending int64 ids.
    """
    count = held_out_nodes(num_nodes, fraction)
    if not count:
        return np.zeros(0, dtype=np.int64)
    return np.sort(numpy_stream(seed, "held out", dataset).choice(num_nodes, count, replace=False))


def counts_of(roles: Sequence[np.ndarray]) -> Counts:
    """Count the nodes of each role at each client.

    Args:
        roles: for each client the int8 roles of its nodes.

    Returns:
        For each of train, val and test [C] int64.
    """
    return {name: np.array([(role == code).sum() for role in roles], dtype=np.int64) for name, code in ROLES.items()}


def clients_without(counts: Counts) -> dict[str, list[int]]:
    """List the clients without a target, for each role.

    Args:
        counts: number of targets of each client, by role.

    Returns:
        For each of train, val and test the ascending numbers of these clients.
    """
    return {name: np.flatnonzero(of_clients == 0).tolist() for name, of_clients in counts.items()}


def check_roles(nodes: np.ndarray, role: np.ndarray) -> None:
    """Check that a node has the same role at all clients that hold it.

    Args:
        nodes: [N] int64 global ids, client by client.
        role: [N] int8.

    Raises:
        PartitionError: a node has two roles; the message names it.
    """
    seen = np.full(int(nodes.max(initial=-1)) + 1, NONE, dtype=role.dtype)
    seen[nodes] = role
    if (seen[nodes] != role).any():
        raise PartitionError(
            f"node {nodes[seen[nodes] != role][0]} has two roles at different clients. Run the split stage again."
        )


def draw_per_class(
    labels: np.ndarray, settings: SplitSettings, stream: np.random.Generator, dataset: str
) -> np.ndarray:
    """Split a whole graph into training nodes of each class, and validation and test nodes of any class.

    Args:
        labels: [num_nodes] int64, -1 for a node without a label.
        settings: `train_per_class`, `val_nodes` and `test_nodes` are read.
        stream: draws one permutation of the labelled nodes.
        dataset: for messages.

    Returns:
        [num_nodes] int8 roles; 0 for nodes beyond the requested numbers.

    Raises:
        PartitionError: validation and test request more nodes than training leaves, or training leaves none to test.
    """
    assert settings.train_per_class is not None and settings.val_nodes is not None
    role = np.zeros(len(labels), dtype=np.int8)
    shuffled = stream.permutation(np.flatnonzero(labels >= 0))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]  # class by class, random inside a class
    first = np.searchsorted(labels[by_class], labels[by_class])  # position at which the class of each node begins
    role[by_class[np.arange(len(by_class)) - first < settings.train_per_class]] = TRAIN
    remaining = shuffled[role[shuffled] == NONE]
    tested = len(remaining) - settings.val_nodes if settings.test_nodes is None else settings.test_nodes
    if tested < 1 or settings.val_nodes + tested > len(remaining):
        raise PartitionError(
            f"dataset '{dataset}': split.val_nodes {settings.val_nodes} and split.test_nodes "
            f"{'(the rest)' if settings.test_nodes is None else settings.test_nodes} request too many nodes: "
            f"split.train_per_class {settings.train_per_class} leaves {len(remaining)} of {len(shuffled)} labelled "
            "nodes. Lower these settings."
        )
    role[remaining[: settings.val_nodes]] = VAL
    role[remaining[settings.val_nodes : settings.val_nodes + tested]] = TEST
    return role


def _public(labels: np.ndarray, masks: Mapping[str, np.ndarray], dataset: str) -> np.ndarray:
    if "train" not in masks:
        raise PartitionError(f"dataset '{dataset}' has no official masks. Use the split kind 'ratios'.")
    role = np.zeros(len(labels), dtype=np.int8)
    for name, code in ROLES.items():
        mask = masks.get(name, np.zeros(len(labels), dtype=bool))
        repeated = int((role[mask] != NONE).sum())
        if repeated:
            raise PartitionError(
                f"dataset '{dataset}': {repeated} nodes of the official {name} mask are also in another mask. Use the "
                "split kind 'ratios'."
            )
        role[mask] = code
    role[labels < 0] = NONE
    return role
