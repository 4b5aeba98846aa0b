"""Roles of nodes: which ones a client trains on, which ones select the round, which ones are tested.

A role is fixed once per node of the whole graph, before nodes are handed to clients, so that no client trains on what
another one tests, even where clients share nodes.
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
"""Of train, val and test [C] int64 the targets of each client."""


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
                raise ValueError(f"'{name}' is read by kind per_class; set that kind, or leave '{name}' out")
        return self

    def spec(self) -> dict[str, Any]:
        """The settings that decide the roles, as identities hold them.

        Older identities do not know `stratify` and do know the ratios of kind public; both stay as they were.
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


OF_ANY_TASK = ("held_out", "empty")
"""The settings that a task with roles of its own reads too."""

PER_CLASS = {"train_per_class": 20, "val_nodes": 500, "test_nodes": 1000}
"""The settings of kind per_class, with the values of the public split of Cora (Yang et al., ICML 2016)."""


def assign_roles(
    labels: np.ndarray,
    assignment: "Assignment",
    settings: SplitSettings,
    seed: int,
    dataset: str,
    scheme: str,
    masks: Mapping[str, np.ndarray],
) -> list[np.ndarray]:
    """The role of every node of every client; a node has the same one in all clients that hold it.

    With `ratios`, each client's labelled nodes are split on their own: where nodes have owners those that it owns,
    else see `draw_at_ratios` of nodes that several clients hold. With `per_class`, the whole graph is split once (see
    `draw_per_class`), alike for all schemes and client counts. Clients that are held out have test nodes alone: all
    labelled ones with `ratios`, else those that the split tests.

    Args:
        labels: [num_nodes] int64, -1 = no label; such nodes have no role.
        assignment: which nodes each client holds.
        settings: kind, ratios and policy.
        seed: the cell's seed.
        dataset, scheme: parts of the name of the random stream, and of messages.
        masks: the dataset's official masks, for `public`.

    Returns:
        one int8 array per client, aligned with its part: 0 none, 1 train, 2 val, 3 test.

    Raises:
        PartitionError: no masks, contradicting masks, no roles in the file, or fewer labelled nodes than asked for.
    """
    parts = assignment.parts
    unseen = [parts[client] for client in assignment.held_out_clients]
    where = f"dataset '{dataset}', scheme '{scheme}', {len(parts)} clients"
    if settings.kind == "ratios":
        stream = numpy_stream(seed, "split", dataset, scheme, len(parts))
        own = [nodes for client, nodes in enumerate(assignment.owned) if client not in assignment.held_out_clients]
        ratios = (settings.train, settings.val, settings.test)
        role = draw_at_ratios(labels, own, ratios, stream, stratify=settings.stratify)
        for nodes in unseen:
            role[nodes] = np.where(labels[nodes] >= 0, TEST, NONE)
    else:
        if settings.kind == "public":
            role = _public(labels, masks, dataset)
        elif settings.kind == "per_class":
            role = draw_per_class(labels, settings, numpy_stream(seed, "split per class", dataset), dataset)
        elif assignment.roles is None:
            raise PartitionError(f"{where}: split.kind 'file' needs a partition file with roles. Use 'ratios' for it.")
        else:
            role = np.where(labels >= 0, assignment.roles, NONE).astype(np.int8)
        for nodes in unseen:
            role[nodes] = np.where(role[nodes] == TEST, TEST, NONE)
    handed = [role[nodes] for nodes in parts]
    check_roles(np.concatenate(parts), np.concatenate(handed))
    return handed


def refuse_empty(counts: Counts, held_out: Sequence[int], where: str) -> None:
    """The policy `empty: error`.

    Args:
        counts: of each role the targets of each client.
        held_out: clients that are tested alone.
        where: for the message.

    Raises:
        PartitionError: a client lacks a role; names it.
    """
    without = clients_without(counts)
    lacking = {
        name: [client for client in clients if name == "test" or client not in held_out]
        for name, clients in without.items()
    }
    if any(lacking.values()):
        found = ", ".join(f"no {name} targets at clients {clients}" for name, clients in lacking.items() if clients)
        raise PartitionError(f"{where}: {found}. Ask for fewer clients, other ratios, or the policy 'empty: keep'.")


def held_out_nodes(num_nodes: int, fraction: float | None) -> int:
    """How many nodes a fraction is: none without one, else at least one, and not all."""
    return 0 if fraction is None else min(max(1, round(fraction * num_nodes)), num_nodes - 1)


def draw_held_out(num_nodes: int, fraction: float | None, seed: int, dataset: str) -> np.ndarray:
    """The nodes that no client gets, ascending int64 ids: the same for every scheme and number of clients at a seed."""
    count = held_out_nodes(num_nodes, fraction)
    if not count:
        return np.zeros(0, dtype=np.int64)
    return np.sort(numpy_stream(seed, "held out", dataset).choice(num_nodes, count, replace=False))


def counts_of(roles: Sequence[np.ndarray]) -> Counts:
    """[C] int64 nodes of each role, from the roles of each client's nodes."""
    return {name: np.array([(own == code).sum() for own in roles], dtype=np.int64) for name, code in ROLES.items()}


def clients_without(counts: Counts) -> dict[str, list[int]]:
    """For each of train, val and test: the clients that have no such target."""
    return {name: np.flatnonzero(of_clients == 0).tolist() for name, of_clients in counts.items()}


def check_roles(nodes: np.ndarray, role: np.ndarray) -> None:
    """Checks that no node has two roles in two clients.

    Raises:
        PartitionError: one has; names it.
    """
    seen = np.full(int(nodes.max(initial=-1)) + 1, NONE, dtype=role.dtype)
    seen[nodes] = role
    if (seen[nodes] != role).any():
        raise PartitionError(
            f"node {nodes[seen[nodes] != role][0]} has two roles in two clients. Run the split stage again."
        )


def draw_per_class(
    labels: np.ndarray, settings: SplitSettings, stream: np.random.Generator, dataset: str
) -> np.ndarray:
    """Splits a whole graph: so many training nodes of each class, then validation and test nodes of any class.

    Args:
        labels: [num_nodes], -1 = none.
        settings: `train_per_class`, `val_nodes`, `test_nodes`.
        dataset: for messages.

    Returns:
        [num_nodes] int8 roles; nodes beyond the numbers have none.

    Raises:
        PartitionError: validation and test ask for more nodes than training leaves, or training leaves none to test.
    """
    assert settings.train_per_class is not None and settings.val_nodes is not None
    role = np.zeros(len(labels), dtype=np.int8)
    shuffled = stream.permutation(np.flatnonzero(labels >= 0))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]  # class by class, random inside a class
    first = np.searchsorted(labels[by_class], labels[by_class])  # where the class of each node begins
    role[by_class[np.arange(len(by_class)) - first < settings.train_per_class]] = TRAIN
    left = shuffled[role[shuffled] == NONE]
    tested = len(left) - settings.val_nodes if settings.test_nodes is None else settings.test_nodes
    if tested < 1 or settings.val_nodes + tested > len(left):
        raise PartitionError(
            f"dataset '{dataset}': split.val_nodes {settings.val_nodes} and split.test_nodes "
            f"{'(the rest)' if settings.test_nodes is None else settings.test_nodes} do not fit: of "
            f"{len(shuffled)} labelled nodes, split.train_per_class {settings.train_per_class} leaves {len(left)}. "
            "Ask for fewer."
        )
    role[left[: settings.val_nodes]] = VAL
    role[left[settings.val_nodes : settings.val_nodes + tested]] = TEST
    return role


def _public(labels: np.ndarray, masks: Mapping[str, np.ndarray], dataset: str) -> np.ndarray:
    if "train" not in masks:
        raise PartitionError(f"dataset '{dataset}' has no official masks. Use the split kind 'ratios' for it.")
    role = np.zeros(len(labels), dtype=np.int8)
    for name, code in ROLES.items():
        mask = masks.get(name, np.zeros(len(labels), dtype=bool))
        if (role[mask] != NONE).any():
            raise PartitionError(
                f"dataset '{dataset}': {int((role[mask] != NONE).sum())} nodes of the official {name} mask are in "
                "another mask too. Use the split kind 'ratios' for it."
            )
        role[mask] = code
    role[labels < 0] = NONE
    return role
