"""Roles drawn at given ratios, client by client, also if clients share nodes."""

from collections.abc import Sequence

import numpy as np

NONE, TRAIN, VAL, TEST = range(4)

Ratios = tuple[float, float, float]


def draw_at_ratios(
    labels: np.ndarray, parts: list[np.ndarray], ratios: Ratios, stream: np.random.Generator, *, stratify: bool
) -> np.ndarray:
    """Draw one role for each node, so that the ratios hold at every client.

    Nodes are split group by group (see `holder_groups`). Rounding gives the clients of a group too many or too few
    nodes of a role. This error is carried to the next groups of these clients, as the mean over the clients of the
    group. The nodes that only one client holds come last. If there are enough of them, the client has the same numbers
    as it would have without sharing.

    Args:
        labels: [num_nodes] int64; -1: the node has no label and gets no role.
        parts: global node ids of each client.
        ratios: of train, val and test.
        stream: draws group by group.
        stratify: whether each group is split by `draw_roles`; otherwise by `shuffle_roles`.

    Returns:
        [num_nodes] int8 roles; 0 for nodes of no client.
    """
    role = np.zeros(len(labels), dtype=np.int8)
    owed = np.zeros((len(parts), len(ratios)))
    for clients, nodes in holder_groups(parts, len(labels)):
        labelled, held_by = int((labels[nodes] >= 0).sum()), list(clients)
        due = np.asarray(ratios) * labelled
        counts = rounded(due + owed[held_by].mean(axis=0), labelled)
        owed[held_by] += due - counts
        if stratify:
            role[nodes] = draw_roles(labels[nodes], counts, stream, one_each=len(clients) == 1)
        else:
            role[nodes] = shuffle_roles(labels[nodes], counts, stream)
    return role


def holder_groups(parts: list[np.ndarray], num_nodes: int) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Group the nodes by the set of clients that hold them.

    Args:
        parts: global node ids of each client, int64.
        num_nodes: of the graph.

    Returns:
        Pairs of clients and node ids: first the shared nodes, most clients first, then in the order of the clients;
        last the nodes of one client each, with one group per client, even an empty one.
    """
    times = np.bincount(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]), minlength=num_nodes)
    holders: dict[int, list[int]] = {}
    for client, nodes in enumerate(parts):
        for node in nodes[times[nodes] > 1].tolist():
            holders.setdefault(node, []).append(client)
    shared: dict[tuple[int, ...], list[int]] = {}
    for node, clients in sorted(holders.items()):
        shared.setdefault(tuple(clients), []).append(node)
    in_order = sorted(shared.items(), key=lambda group: (-len(group[0]), group[0]))
    alone = [((client,), nodes[times[nodes] == 1]) for client, nodes in enumerate(parts)]
    groups = [(clients, np.array(nodes)) for clients, nodes in in_order]
    return [*groups, *alone]


def draw_roles(
    labels: np.ndarray, numbers: Sequence[int], stream: np.random.Generator, *, one_each: bool = True
) -> np.ndarray:
    """Split the labelled nodes of one client, or of a group that several clients share, stratified by class.

    Training nodes are distributed among the classes. With `one_each`, every class present gets one, rarest class first,
    as long as there are any. The others follow the class sizes by largest remainder. Validation nodes are distributed
    in the same way, without the minimum, over the remaining nodes of each class. The rest is tested. The stream breaks
    ties and draws the nodes inside a class.

    Args:
        labels: [nodes] int64, -1 for a node without a label.
        numbers: of train, val and test nodes; they sum to the number of labelled nodes.
        stream: draws two permutations.
        one_each: whether every class gets a training node if possible.

    Returns:
        [nodes] int8 roles.
    """
    role = np.zeros(len(labels), dtype=np.int8)
    labelled = np.flatnonzero(labels >= 0)
    _, of_class, counts = np.unique(labels[labelled], return_inverse=True, return_counts=True)
    ties = stream.permutation(len(counts))
    train = apportion(counts, numbers[0], ties, one_each)
    val = apportion(counts - train, numbers[1], ties)
    order = np.lexsort((stream.permutation(len(labelled)), of_class))  # class by class, random inside a class
    of_class = of_class[order]
    rank = np.arange(len(order)) - (np.cumsum(counts) - counts)[of_class]
    drawn = np.where(rank < train[of_class], TRAIN, np.where(rank < (train + val)[of_class], VAL, TEST))
    role[labelled[order]] = drawn
    return role


def shuffle_roles(labels: np.ndarray, numbers: Sequence[int], stream: np.random.Generator) -> np.ndarray:
    """Split the labelled nodes at random, without regard to their classes, as the public codes do.

    Args:
        labels: [nodes] int64, -1 for a node without a label.
        numbers: of train, val and test nodes; they sum to the number of labelled nodes.
        stream: draws one permutation.

    Returns:
        [nodes] int8 roles.
    """
    role = np.zeros(len(labels), dtype=np.int8)
    role[stream.permutation(np.flatnonzero(labels >= 0))] = np.repeat([TRAIN, VAL, TEST], numbers)
    return role


def largest_remainder(ratios: Sequence[float], total: int) -> list[int]:
    """Round ratios x total to integers by largest remainder, see `rounded`; public codes round train and val down.

    Args:
        ratios: they sum to 1.
        total: the sum of the result.

    Returns:
        One integer for each ratio.
    """
    return rounded([ratio * total for ratio in ratios], total)


def rounded(exact: Sequence[float] | np.ndarray, total: int) -> list[int]:
    """Round numbers to integers with the same sum, by largest remainder.

    Of equal fractions the first is rounded up first. Negative numbers are set to 0, and the others reduced in
    proportion.

    Args:
        exact: real numbers that sum to `total`.
        total: the sum of the result.

    Returns:
        One integer for each number.
    """
    due = np.asarray(exact, dtype=np.float64)
    if (due < 0).any():
        due = due.clip(0) * (total / due.clip(0).sum() if total else 0.0)
    shares = [round(value, 9) for value in due.tolist()]
    seats = [int(share) for share in shares]
    by_fraction = sorted(range(len(shares)), key=lambda i: (-round(shares[i] - seats[i], 9), i))
    for index in by_fraction[: total - sum(seats)]:
        seats[index] += 1
    return seats


def apportion(counts: np.ndarray, total: int, ties: np.ndarray, one_each: bool = False) -> np.ndarray:
    """Distribute `total` seats among classes in proportion to their sizes, by largest remainder.

    Args:
        counts: [classes] int64, nodes available; no class gets more seats.
        total: number of seats, at most the sum of `counts`.
        ties: [classes] distinct integers; of equal classes the one with the lower number is served first.
        one_each: whether every class with a node gets at least one seat, rarest class first, as long as there are
            seats; the classes furthest above their share give up seats for it.

    Returns:
        [classes] int64 seats.
    """
    least = np.zeros(len(counts), dtype=np.int64)
    if one_each:
        rarest_first = np.lexsort((ties, counts))
        least[rarest_first[counts[rarest_first] > 0][:total]] = 1
    size = max(int(counts.sum()), 1)
    seats = np.maximum(counts * total // size, least)
    never = size * size + 1
    while seats.sum() < total:
        behind = np.where(seats < counts, counts * total - seats * size, -never)
        seats[np.lexsort((ties, -behind))[0]] += 1
    while seats.sum() > total:
        ahead = np.where(seats > least, seats * size - counts * total, -never)
        seats[np.lexsort((ties, -ahead))[0]] -= 1
    return seats
