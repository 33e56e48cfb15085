"""Likelihoods: how observations speak about the latent function. One class and one line in `LIKELIHOODS` each.

Every likelihood enters the closed form as Gaussian sites: each row has a pseudo-target t and a pseudo-noise v, so that
the latent function given the neighbours is Gaussian. For all but the Gaussian the sites depend on an auxiliary number
of the row (Sec. 3.3 and 3.4 of the paper), which follows from the row's own moments in closed form.

A row is an input with what was observed there, its statistics (S numbers). For `Weighted` likelihoods these are the
target, how often the row counts, and what else is given (a known noise variance, trials, a log exposure); for classes
they are how often each class was seen there. An observation is what is left out at a time: one copy of a row, or one
label of an input. `GaussianOutputs` has several targets in a row. Latents is () where there is one latent function and
(C,) where there are C.
"""

from __future__ import annotations

from nearfield.likelihoods._base import NOISE_FLOOR, Likelihood, Observations, Parameter, Sites
from nearfield.likelihoods.classes import Bernoulli, OneAgainstAll
from nearfield.likelihoods.counts import Binomial, NegativeBinomial
from nearfield.likelihoods.gaussian import Gaussian
from nearfield.likelihoods.outputs import GaussianOutputs
from nearfield.likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "gaussian_outputs": GaussianOutputs,
    "student_t": StudentT,
    "bernoulli": Bernoulli,
    "one_against_all": OneAgainstAll,
    "binomial": Binomial,
    "negative_binomial": NegativeBinomial,
}

__all__ = ["LIKELIHOODS", "NOISE_FLOOR", "Likelihood", "Observations", "Parameter", "Sites"]
