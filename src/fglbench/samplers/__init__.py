"""Which rows a target reads instead of all its neighbours: one file a sampler; `base.py` holds the contract."""

from collections.abc import Callable
from functools import partial

import scipy.sparse as sp

from fglbench import registry
from fglbench.samplers.base import Sampler
from fglbench.settings import SampledSettings


def sampler_of(settings: SampledSettings) -> Callable[[sp.csr_matrix], Sampler]:
    """What makes the sampler that a backbone's settings name, of an adjacency."""
    own = registry.declaration("sampler", settings.sampler).settings(**settings.sampler_settings)
    return partial(registry.module("sampler", settings.sampler).Sampler, own)
