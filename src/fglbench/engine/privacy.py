"""Local differential privacy of uploaded updates (FedGT, algorithm 3 and section E.8): clipped, with Laplace noise.

A client uploads theta + clip(theta_i - theta, delta) + n, elementwise, n ~ Laplace(0, lambda), theta what it received.
An update has the privacy budget epsilon = 2 delta / lambda; several updates add up.
"""

import numpy as np
import torch

from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import LocalPrivacy
from fglbench.seeding import derive


class Noise:
    """Protects uploads; every client draws from a stream of its own.

    Args:
        settings: clip and noise.
        clients: of the federation.
        seed: of the cell.
        device: where parameters live.
    """

    def __init__(self, settings: LocalPrivacy, clients: int, seed: int, device: torch.device | str):
        self._settings = settings
        self._streams = [torch.Generator(device).manual_seed(derive(seed, "privacy", c)) for c in range(clients)]

    def protect(self, parameters: Parameters, received: Parameters, clients: np.ndarray) -> Parameters:
        """What is uploaded instead of the parameters [C, ...] of some clients; the others' stay as they are."""
        clip, scale = self._settings.clip, self._settings.noise
        protected = {}
        for name, own in parameters.items():
            uploaded = own.clone()
            for client in clients:
                update = (own[client] - received[name][client]).clamp(-clip, clip)
                uniform = torch.empty_like(update).uniform_(generator=self._streams[client]) - 0.5
                laplace = -scale * uniform.sign() * torch.log1p(-2 * uniform.abs().clamp(max=0.5 - 1e-7))
                uploaded[client] = received[name][client] + update + laplace
            protected[name] = uploaded
        return protected
