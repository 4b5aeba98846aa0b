"""Roles drawn at ratios, client by client, also where clients share nodes."""

from collections.abc import Sequence

import numpy as np

NONE, TRAIN, VAL, TEST = range(4)

Ratios = tuple[float, float, float]


def draw_at_ratios(
    labels: np.ndarray, parts: list[np.ndarray], ratios: Ratios, stream: np.random.Generator, *, stratify: bool
) -> np.ndarray:
    """One role for each node, so that the ratios hold in every client.

    Nodes are split group by group (see `holder_groups`). What the rounding of a group gives its clients too much or too
    little of a role is carried to their next groups, as the mean over the clients of the group. The nodes that a client
    has for itself come last: with enough of them, its numbers are those that it would have alone.

    Args:
        labels: [num_nodes] int64, -1 = no label; such nodes have no role.
        parts: global node ids of each client.
        ratios: of train, val and test.
        stream: draws, group by group.
        stratify: `draw_roles` in each group, else `shuffle_roles`.

    Returns:
        [num_nodes] int8 roles; none for nodes of no client.
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
    """The nodes that the same clients hold, with those clients: most holders first, then in the order of the clients.

    Every client has a group of its own, the last ones, even where that is empty.
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
    return [*((clients, np.array(nodes)) for clients, nodes in in_order), *alone]


def draw_roles(
    labels: np.ndarray, numbers: Sequence[int], stream: np.random.Generator, *, one_each: bool = True
) -> np.ndarray:
    """Splits the labelled nodes of one client, or of a group that several share, stratified by class.

    The training nodes are shared among classes: with `one_each` every class present gets one as long as there are any,
    rarest class first; the others follow the class sizes by largest remainder. Validation nodes are shared likewise,
    without the minimum, over what is left of each class; the rest is tested. The stream breaks ties and draws the nodes
    inside a class.

    Args:
        labels: [nodes], -1 = none.
        numbers: of train, val and test nodes; they sum to the labelled ones.

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
    place = np.arange(len(order)) - (np.cumsum(counts) - counts)[of_class]
    drawn = np.where(place < train[of_class], TRAIN, np.where(place < (train + val)[of_class], VAL, TEST))
    role[labelled[order]] = drawn
    return role


def shuffle_roles(labels: np.ndarray, numbers: Sequence[int], stream: np.random.Generator) -> np.ndarray:
    """Splits the labelled nodes at random, whatever their classes, as the public codes do.

    Arguments and result as `draw_roles`.
    """
    role = np.zeros(len(labels), dtype=np.int8)
    role[stream.permutation(np.flatnonzero(labels >= 0))] = np.repeat([TRAIN, VAL, TEST], numbers)
    return role


def largest_remainder(ratios: Sequence[float], total: int) -> list[int]:
    """Whole numbers near ratios x total that sum to total (see `rounded`); public codes round train and val down."""
    return rounded([ratio * total for ratio in ratios], total)


def rounded(exact: Sequence[float] | np.ndarray, total: int) -> list[int]:
    """Whole numbers near `exact`, which sums to `total`, that sum to it too; what rounding leaves goes to the largest
    fractions, the first of equal ones first. Negative ones count as zero, and the others give way in proportion."""
    due = np.asarray(exact, dtype=np.float64)
    if (due < 0).any():
        due = due.clip(0) * (total / due.clip(0).sum() if total else 0.0)
    wanted = [round(value, 9) for value in due.tolist()]
    seats = [int(value) for value in wanted]
    by_fraction = sorted(range(len(wanted)), key=lambda i: (-round(wanted[i] - seats[i], 9), i))
    for index in by_fraction[: total - sum(seats)]:
        seats[index] += 1
    return seats


def apportion(counts: np.ndarray, total: int, ties: np.ndarray, one_each: bool = False) -> np.ndarray:
    """Shares `total` seats among classes by size, largest remainder first, at most `counts` each.

    Args:
        counts: [classes] nodes available.
        total: at most their sum.
        ties: [classes] distinct numbers; of equal classes the lower one is served first.
        one_each: every class with a node gets a seat, rarest first, as far as seats go; the classes furthest above
            their share pay for it.

    Returns:
        [classes] int64.
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
