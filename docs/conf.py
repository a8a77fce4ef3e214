"""Sphinx's settings, and what is generated before pages are read."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import _inventories  # noqa: E402
import _pages  # noqa: E402

from shaped_attention.libraries import __version__  # noqa: E402

project = "shaped_attention"
author = "the authors of shaped_attention"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.githubpages",  # an empty .nojekyll: hosts then keep folders that begin with _
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # formulas are drawn without the network
]
intersphinx_mapping = _inventories.write_all(HERE / "_generated" / "inventories")

# Markdown and notebooks. Notebooks are not run here: `make notebooks` runs them.
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "html_image"]
myst_heading_anchors = 3
nb_execution_mode = "off"

# Docstrings. In them `name` is code: a link where the name is documented, plain code elsewhere.
default_role = "py:obj"
nitpicky = False
smartquotes = False  # quotes in docstrings are those of code
add_module_names = False
autodoc_member_order = "bysource"
# Defaults are read from signatures: those of samplers are not all in their sources.
autodoc_preserve_defaults = False
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Layer", "Observable")}
autosummary_generate = False
napoleon_google_docstring = False
napoleon_custom_sections = ["Returns"]  # free text, often with a list
napoleon_use_ivar = True
napoleon_use_param = False  # names that share a description stay together
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
suppress_warnings = ["toc.empty_glob"]  # a checkout may have no notebooks

exclude_patterns = ["_generated/parts"]  # other pages include these

html_theme = "furo"
html_title = f"shaped attention {__version__}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]


def setup(app: Any) -> None:
    """Write `_generated` before Sphinx looks for pages."""
    app.connect("builder-inited", lambda _: _pages.write_all(HERE / "_generated"))
    app.connect("source-read", _with_copies)
    app.connect("build-finished", _name_version)
    app.connect("autodoc-process-docstring", _escape)
    app.connect("autodoc-process-signature", _without_factory)


def _with_copies(app: Any, name: str, source: list[str]) -> None:
    source[0] = _pages.links_to_copies(source[0], "../" * name.count("/"))


def _name_version(app: Any, exception: Exception | None) -> None:
    """Write versions.json, by which a host that keeps several versions can list them."""
    if exception is None:
        text = json.dumps([{"name": project, "version": __version__, "url": f"../{__version__}/"}])
        (Path(app.outdir) / "versions.json").write_text(f"{text}\n", encoding="utf-8")


# In a docstring |V| is a norm and s_+ a slope; in reStructuredText they would be a substitution and
# a link. Code, doctests and literal blocks stay as they are.
_KEPT = re.compile(
    r"``.+?``|`[^`]+`|^[ ]*>>>.*?(?=\n[ ]*\n|\Z)|^([ ]*)\S[^\n]*::\n\n(?:\1[ ]+[^\n]*\n|[ ]*\n)+"
    r"|\||(?<=\w)_(?!\w)",
    re.DOTALL | re.MULTILINE,
)


def _escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the characters of a docstring's formulas, in place."""
    text = _KEPT.sub(
        lambda found: f"\\{found[0]}" if found[0] in "|_" else found[0], "\n".join(lines)
    )
    lines[:] = text.split("\n")


def _without_factory(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Write `...` for the default of a dataclass's field that is made by a factory."""
    return (signature and signature.replace("<factory>", "...")), result
