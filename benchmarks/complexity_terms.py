"""Table 1 of FedGTA (Li et al., VLDB 2024) as numbers: what each method's cost is bounded by at given sizes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

HOPS, ORDER, WINDOW, LAYERS, GENERATED = 5, 6, 3, 2, 5


@dataclass(frozen=True)
class Sizes:
    """What costs grow with, in the paper's letters below.

    Attributes:
        nodes: n, of one client.
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
        """These sizes with another one of `nodes`, `features` or `clients`."""
        return replace(self, **{factor: size})


class Letters(NamedTuple):
    """The letters of table 1: k and K are propagation steps and order of the moments, T the window of GCFL+, L the
    layers of an FGL model, s and g the nodes that FedSage+ augments and the neighbours it generates for each. The
    batch b is all nodes of a client."""

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
        # The paper's log has no base; that of 2 is not zero at two clients.
        from math import log2

        return log2(self.N)


class Term(NamedTuple):
    """A term of the table: its text, and its value with all constants 1."""

    text: str
    value: Callable[[Letters], float]

    def at(self, sizes: Sizes) -> float:
        n, f = float(sizes.nodes), float(sizes.features)
        return self.value(Letters(n, n * sizes.degree / 2, f, float(sizes.classes), float(sizes.clients), n / 2))


class Row(NamedTuple):
    """A row of the table: per client in memory and time, and the server's."""

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
    """The term beside a measured quantity.

    Seconds have theirs in the table. Bytes stand beside the server's memory: what it holds of a round it was sent. The
    process that is measured holds all clients and the server, so peak memory stands beside N clients' and the server's.
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
