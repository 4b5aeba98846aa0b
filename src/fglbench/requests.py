"""What a backbone asks preprocessing to make of the client graphs: typed requests, which are part of a cell's identity.

Settings are read without torch and numpy, and so is this module; `federation.propagation` answers the requests.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Combine: TypeAlias = Literal["last", "each"] | tuple[float, ...]


@dataclass(frozen=True)
class Propagation:
    """A normalised operator A = D^(r-1) (A + I) D^(-r), and the features of the first linear map propagated with it.

    Attributes:
        r: kernel coefficient; 0.5 is symmetric, 0 averages over neighbours.
        self_loops: whether A has self-loops.
        hops: applications of A in the first linear map that may be made ahead of training.
        combine: "last" (A^hops X), "each" (X, A X, ..., A^hops X), or hops + 1 coefficients c (sum over l of
            c_l A^l X).
        fill: whether sparse features may be propagated ahead, which fills them up.
    """

    r: float = 0.5
    self_loops: bool = True
    hops: int = 0
    combine: Combine = "last"
    fill: bool = True

    def spec(self) -> dict[str, Any]:
        """The request in a specification; what is not said has its default."""
        spec: dict[str, Any] = {"r": self.r, "hops": self.hops}
        if not self.self_loops:
            spec["self_loops"] = False
        if self.combine != "last":
            spec["combine"] = list(self.combine) if isinstance(self.combine, tuple) else self.combine
        if not self.fill:
            spec["fill"] = False
        return spec

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "Propagation":
        """The request in a specification, which may say other things beside it."""
        own = {name: spec[name] for name in cls.__dataclass_fields__ if name in spec}
        if isinstance(own.get("combine"), list):
            own["combine"] = tuple(own["combine"])
        return cls(**own)
