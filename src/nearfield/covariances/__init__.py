"""Covariances of the latent functions: one kernel for all, one for each, or mixtures of some.

Each knows its parameters, the length scales under which neighbours are searched, the prior variances of the latent
functions, and how the closed form is applied. Noise variances come in relative to these prior variances.
"""

from nearfield.covariances._base import Centred, Covariance, CovarianceSlopes, Kernels, KernelWeights, NoiseWeights
from nearfield.covariances._together import Together
from nearfield.covariances.mixed import Mixed
from nearfield.covariances.per_latent import PerLatent
from nearfield.covariances.shared import Shared

__all__ = [
    "Centred",
    "Covariance",
    "CovarianceSlopes",
    "KernelWeights",
    "Kernels",
    "Mixed",
    "NoiseWeights",
    "PerLatent",
    "Shared",
    "Together",
]
