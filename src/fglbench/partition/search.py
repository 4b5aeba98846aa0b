"""Searches for communities and balanced parts, which run in a child process.

Each function imports only the library that it needs, because a child starts for every seed.
"""

import random

import numpy as np


def louvain_communities(edges: np.ndarray, nodes: int, algorithm: str, resolution: float, seed: int) -> np.ndarray:
    """Find Louvain communities of an undirected graph, in this process.

    Args:
        edges: [2, num_edges] int64, each edge once, sorted.
        nodes: number of nodes.
        algorithm: "python-louvain", "igraph" (its multilevel Louvain) or "igraph-leiden" (two iterations).
        resolution: weight of the expected edges in the modularity; 1 for python-louvain, which treats other values
            wrongly.
        seed: of the order in which nodes are visited.

    Returns:
        [nodes] int64, the community of each node.
    """
    if algorithm != "python-louvain":
        import igraph

        igraph.set_random_number_generator(random.Random(seed))
        graph = igraph.Graph(n=nodes, edges=edges.T)
        if algorithm == "igraph-leiden":
            clustering = graph.community_leiden(objective_function="modularity", resolution=resolution, n_iterations=2)
        else:
            clustering = graph.community_multilevel(resolution=resolution)
        return np.asarray(clustering.membership, dtype=np.int64)
    import networkx
    from community import community_louvain

    graph = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges.T.tolist())
    by_node = community_louvain.best_partition(graph, resolution=resolution, random_state=seed)
    return np.fromiter((by_node[node] for node in range(nodes)), dtype=np.int64, count=nodes)


def metis_membership(starts: np.ndarray, adjacent: np.ndarray, clients: int, recursive: bool, seed: int) -> np.ndarray:
    """Partition a graph with METIS, in this process.

    Args:
        starts: [nodes + 1] integer, position of the first neighbour of each node in `adjacent`.
        adjacent: [entries] integer, the neighbours; METIS crashes if they are not symmetric.
        clients: number of parts.
        recursive: whether to use recursive bisection instead of the k-way algorithm.
        seed: of METIS.

    Returns:
        [nodes] int64, the part of each node; a part may have no node.
    """
    import pymetis

    integer = pymetis.zero_copy_dtype()
    adjacency = pymetis.CSRAdjacency(starts.astype(integer), adjacent.astype(integer))
    options = pymetis.Options(seed=seed)
    parts = pymetis.part_graph(clients, adjacency, recursive=recursive, options=options)
    return np.asarray(parts.vertex_part, dtype=np.int64)
