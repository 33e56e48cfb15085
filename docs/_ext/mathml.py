"""Mathematics as MathML, written when the site is built: browsers show it without a script and without a network.

LaTeX is read by the converter of docutils. It knows no macros and refuses what it does not know, which is a warning
here and so ends the build; the few commands that it lacks and people write are turned into those that it has.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)

SPELLINGS = (
    (r"\\dots[cbmio]?(?![a-zA-Z])", r"\\ldots"),
    (r"\\stackrel(?![a-zA-Z])", r"\\overset"),
    (r"\\(big|Big|bigg|Bigg)(?![a-zA-Z])", r"\\\1l"),
    (r"\\(begin|end)\{(?:align|gather|eqnarray|split)\*?\}", r"\\\1{aligned}"),
    (r"\\(?:begin|end)\{equation\*?\}", ""),
)


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def written(node: nodes.Element, as_block: bool) -> str:
    """The formula of a node as MathML; a warning, and its source, where it cannot be read."""
    text = node.astext()
    for pattern, instead in SPELLINGS:
        text = re.sub(pattern, instead, text)
    try:
        return tex2mathml(text.strip(), as_block=as_block)
    except (MathError, IndexError, ValueError) as error:
        logger.warning("this formula cannot be turned into MathML: %s\n%s", error, node.astext(), location=node)
        return f"<code>{escape(node.astext())}</code>"


def visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(written(node, as_block=False))
    raise nodes.SkipNode


def visit_displaymath(self: Any, node: nodes.math_block) -> None:
    # wide formulas are scrolled, which must be possible by the keyboard, too
    self.body.append(self.starttag(node, "div", CLASS="math", tabindex="0"))
    self.body.append(written(node, as_block=True))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode
