"""Samplers: the rows that a target reads instead of all its neighbours.

One file per sampler; `base.py` holds the contract.
"""

from collections.abc import Callable
from functools import partial

import scipy.sparse as sp

from fglbench import registry
from fglbench.samplers.base import Sampler
from fglbench.settings import SampledSettings


def sampler_of(settings: SampledSettings) -> Callable[[sp.csr_matrix], Sampler]:
    """Return the factory of the sampler that the settings of a backbone name.

    Args:
        settings: name and settings of the sampler.

    Returns:
        Function that makes the sampler of an adjacency matrix [N, N].
    """
    sampler_settings = registry.declaration("sampler", settings.sampler).settings(**settings.sampler_settings)
    return partial(registry.module("sampler", settings.sampler).Sampler, sampler_settings)
