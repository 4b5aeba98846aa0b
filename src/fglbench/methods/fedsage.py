"""FedSage (Zhang et al., NeurIPS 2021, section 3): GraphSAGE under FedAvg, or under another aggregation.

It equals the method `aggregation` on the backbone sage, and does not apply to other backbones.
"""

from fglbench.backbones import sage
from fglbench.methods.common import aggregated
from fglbench.settings import AggregatedSettings

VERSION = 1


class Settings(AggregatedSettings):
    pass


class Method(aggregated.Method):
    def not_applicable(self) -> str | None:
        if not isinstance(self.backbone, sage.Backbone):
            return "FedSage is GraphSAGE under federated aggregation; use the backbone sage"
        return super().not_applicable()
