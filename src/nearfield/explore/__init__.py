"""A page to play with a fitted model: predictions as the columns vary, and the training rows behind them.

fields     columns as the page asks for them: read, checked, written
rows       training rows, drawn at random or asked for
kinds      what is shown of numbers, counts and classes
explorer   questions of the page, answered from the public methods of the estimators
server     these answers over HTTP, for this computer alone
page/      the page itself, which draws them
"""

from __future__ import annotations

from nearfield.explore.explorer import Explorer
from nearfield.explore.server import ADDRESS, Page, serve

__all__ = ["ADDRESS", "Explorer", "Page", "serve"]
