"""Heads: from the moments of the latent functions at a row to the predictive distribution of an observation there.

A head has a handful of scalars, fitted to the scores of a few thousand left-out observations. `regression.py`,
`outputs.py`, `classes.py` and `counts.py` hold one each, with its calibrator: how it is fitted, judged and described. A
family says which one it has; the choice of k is the same for all (`calibration.py`).
"""
