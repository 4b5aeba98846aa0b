"""Table 1 of FedGTA (Li et al., VLDB 2024) as numbers: bounds on each method's cost at given sizes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

HOPS, ORDER, WINDOW, LAYERS, GENERATED = 5, 6, 3, 2, 5


@dataclass(frozen=True)
class Sizes:
    """Sizes that costs depend on, with the paper's letters.

    Attributes:
        nodes: n, nodes of one client.
        features: f.
        clients: N.
        degree: mean number of neighbours of a node.
        classes: c.
    """

    nodes: int
    features: int
    clients: int
    degree: float = 6.0
    classes: int = 5

    def at(self, factor: str, size: int) -> "Sizes":
        """Return these sizes with another value of `nodes`, `features` or `clients`."""
        return replace(self, **{factor: size})


class Letters(NamedTuple):
    """The letters of table 1.

    k and K are the propagation steps and the order of the moments, T is the window of GCFL+, L the layers of an FGL
    model. s is the number of nodes that FedSage+ augments, g the number of neighbours it generates for each. The batch
    b is all nodes of a client.
    """

    n: float
    m: float
    f: float
    c: float
    N: float
    s: float
    k: float = HOPS
    K: float = ORDER
    T: float = WINDOW
    L: float = LAYERS
    g: float = GENERATED

    @property
    def b(self) -> float:
        return self.n

    @property
    def log_N(self) -> float:
        # The paper's log has no base; base 2 gives 1 at two clients.
        from math import log2

        return log2(self.N)


class Term(NamedTuple):
    """A term of the table: its text, and its value with all constants set to 1."""

    text: str
    value: Callable[[Letters], float]

    def at(self, sizes: Sizes) -> float:
        n, f = float(sizes.nodes), float(sizes.features)
        return self.value(Letters(n, n * sizes.degree / 2, f, float(sizes.classes), float(sizes.clients), n / 2))


class Row(NamedTuple):
    """A row of the table: memory and time of a client, and of the server."""

    client_memory: Term
    server_memory: Term
    client_time: Term
    server_time: Term
    inference_time: Term


_ONE_MODEL = Term("N + N f²", lambda x: x.N + x.N * x.f**2)
_COUNT = Term("N", lambda x: x.N)
_SGC = Term("k m f + n f²", lambda x: x.k * x.m * x.f + x.n * x.f**2)

TABLE = {
    "fedavg": Row(
        Term("(b + k) f + f²", lambda x: (x.b + x.k) * x.f + x.f**2),
        _ONE_MODEL,
        _SGC,
        _COUNT,
        _SGC,
    ),
    "fedprox": Row(
        Term("(b + k) f + 2 f²", lambda x: (x.b + x.k) * x.f + 2 * x.f**2),
        _ONE_MODEL,
        Term("k m f + n f² + f²", lambda x: x.k * x.m * x.f + x.n * x.f**2 + x.f**2),
        _COUNT,
        _SGC,
    ),
    "scaffold": Row(
        Term("(b + k) f + 2 f²", lambda x: (x.b + x.k) * x.f + 2 * x.f**2),
        Term("N + 2 N f² + f²", lambda x: x.N + 2 * x.N * x.f**2 + x.f**2),
        Term("k m f + n f² + f²", lambda x: x.k * x.m * x.f + x.n * x.f**2 + x.f**2),
        Term("N + N f² + f²", lambda x: x.N + x.N * x.f**2 + x.f**2),
        _SGC,
    ),
    "moon": Row(
        Term("(3 b + k) f + f²", lambda x: (3 * x.b + x.k) * x.f + x.f**2),
        _ONE_MODEL,
        Term("k m f + n f² + 2 n f", lambda x: x.k * x.m * x.f + x.n * x.f**2 + 2 * x.n * x.f),
        _COUNT,
        _SGC,
    ),
    "feddc": Row(
        Term("(b + k) f + 4 f²", lambda x: (x.b + x.k) * x.f + 4 * x.f**2),
        Term("N + 2 N f²", lambda x: x.N + 2 * x.N * x.f**2),
        Term("k m f + n f² + 4 f²", lambda x: x.k * x.m * x.f + x.n * x.f**2 + 4 * x.f**2),
        _COUNT,
        _SGC,
    ),
    "gcfl+": Row(
        Term("(b + k) f + f²", lambda x: (x.b + x.k) * x.f + x.f**2),
        Term("N + N f² + T N f²", lambda x: x.N + x.N * x.f**2 + x.T * x.N * x.f**2),
        _SGC,
        Term("N + N² (log N + T² f²)", lambda x: x.N + x.N**2 * (x.log_N + x.T**2 * x.f**2)),
        _SGC,
    ),
    "fedgl": Row(
        Term("L n f + L f² + n²", lambda x: x.L * x.n * x.f + x.L * x.f**2 + x.n**2),
        Term("N + N L f²", lambda x: x.N + x.N * x.L * x.f**2),
        Term("L m f + L n f² + n² f", lambda x: x.L * x.m * x.f + x.L * x.n * x.f**2 + x.n**2 * x.f),
        _COUNT,
        Term("L m f + L n f² + n² f", lambda x: x.L * x.m * x.f + x.L * x.n * x.f**2 + x.n**2 * x.f),
    ),
    "fedsage+": Row(
        Term("L (n + s g) f + 3 L f²", lambda x: x.L * (x.n + x.s * x.g) * x.f + 3 * x.L * x.f**2),
        Term("N + 3 N L f²", lambda x: x.N + 3 * x.N * x.L * x.f**2),
        Term(
            "L (m + s g) f + L (n + s g) f²",
            lambda x: x.L * (x.m + x.s * x.g) * x.f + x.L * (x.n + x.s * x.g) * x.f**2,
        ),
        _COUNT,
        Term(
            "L (m + s g) f + L (n + s g) f²",
            lambda x: x.L * (x.m + x.s * x.g) * x.f + x.L * (x.n + x.s * x.g) * x.f**2,
        ),
    ),
    "fedgta": Row(
        Term("(b + k) f + f² + k K c", lambda x: (x.b + x.k) * x.f + x.f**2 + x.k * x.K * x.c),
        Term("N + N f² + N k K c", lambda x: x.N + x.N * x.f**2 + x.N * x.k * x.K * x.c),
        Term(
            "k m (f + k n c) + n (f² + c)",
            lambda x: x.k * x.m * (x.f + x.k * x.n * x.c) + x.n * (x.f**2 + x.c),
        ),
        Term("N + N k K c", lambda x: x.N + x.N * x.k * x.K * x.c),
        _SGC,
    ),
}


def term_of(method: str, quantity: str) -> Term:
    """Return the term that belongs to a measured quantity.

    Times have their own terms in the table. Bytes belong to the server's memory, which holds the uploads of a round.
    The measured process holds all clients and the server, so peak memory belongs to N clients plus the server.
    """
    row = TABLE[method]
    if quantity == "peak_mb":
        client, server = row.client_memory, row.server_memory
        return Term(f"N ({client.text}) + {server.text}", lambda x: x.N * client.value(x) + server.value(x))
    beside = {
        "client_s": row.client_time,
        "server_s": row.server_time,
        "bytes": row.server_memory,
        "inference_s": row.inference_time,
    }
    return beside[quantity]
