"""Local differential privacy of uploaded updates (FedGT, algorithm 3 and section E.8): clipping and Laplace noise.

A client that received theta uploads theta + clip(theta_i - theta, delta) + n, elementwise, with n ~ Laplace(0, lambda).
One update has the privacy budget epsilon = 2 delta / lambda; the budgets of several updates add up.
"""

import numpy as np
import torch

from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import LocalPrivacy
from fglbench.seeding import derive


class Noise:
    """Clipping and Laplace noise for uploads; every client draws from a random stream of its own.

    Args:
        settings: clipping bound delta and noise scale lambda.
        clients: number of clients of the federation.
        seed: seed of the cell.
        device: device of the parameters.
    """

    def __init__(self, settings: LocalPrivacy, clients: int, seed: int, device: torch.device | str):
        self._settings = settings
        self._streams = [torch.Generator(device).manual_seed(derive(seed, "privacy", c)) for c in range(clients)]

    def protect(self, parameters: Parameters, received: Parameters, clients: np.ndarray) -> Parameters:
        """Clip the updates of some clients and add noise.

        Args:
            parameters: [C, ...] parameters after local training, by name.
            received: [C, ...] parameters that the clients received, by name.
            clients: ids of the clients whose updates are protected.

        Returns:
            New tensors [C, ...] by name: the uploads of these clients, and unchanged parameters of all others.
        """
        clip, scale = self._settings.clip, self._settings.noise
        protected = {}
        for name, tensor in parameters.items():
            uploaded = tensor.clone()
            for client in clients:
                update = (tensor[client] - received[name][client]).clamp(-clip, clip)
                uniform = torch.empty_like(update).uniform_(generator=self._streams[client]) - 0.5
                laplace = -scale * uniform.sign() * torch.log1p(-2 * uniform.abs().clamp(max=0.5 - 1e-7))
                uploaded[client] = received[name][client] + update + laplace
            protected[name] = uploaded
        return protected
