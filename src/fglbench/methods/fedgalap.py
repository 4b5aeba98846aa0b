"""Fed-GALAp (thesis 2023, section 3.2.3): Fed-GALA with FedProx's term, adapted to the loss, in the local losses.

Fed-GALA is as in `fedgala`, and the term is as in `fedprox`. The text adds the term to eq. 3.1, the loss of phase 1,
and prints the distance without its square. Here the term is FedProx's, and belongs to the local losses of phases 1 and
3. Phase 3 continues with the mu of phase 1.

Defaults:
    mu 1.0: the paper's.
    mu_step 0.1: the paper's.
    alpha 0.001: the paper's for Cora under the global test.
    link_share 0.5: the paper's.
    augment anchors: the paper's.
    weights labelled_times_nodes: the paper's.
"""

from typing import Literal

from fglbench.methods import fedgala, fedprox
from fglbench.settings import ComponentSettings, Field

VERSION = 1
AGGREGATES = False


class Settings(ComponentSettings):
    alpha: float = Field(0.001, ge=0, description="Change of a client's loss below which phase 1 is over for it.")
    link_share: float = Field(0.5, ge=0, le=1, description="Share of the link loss in phase 1; 0: the task's alone.")
    augment: Literal["anchors", "local", "none"] = Field(
        "anchors", description="Links by the anchors' mean embeddings, by each client's own, or none."
    )
    weights: Literal["labelled", "nodes", "labelled_times_nodes"] = Field(
        "labelled_times_nodes", description="What a client counts by: training nodes, all its nodes, or their product."
    )
    mu: float = Field(1.0, ge=0, description="Weight of the proximal term at the start.")
    mu_step: float = Field(0.1, ge=0, description="What mu changes by as the loss falls or rises; 0: fixed.")


class Method(fedgala.Method, fedprox.Method):
    pass
