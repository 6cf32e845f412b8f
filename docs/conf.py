"""How Sphinx builds the site. Its pages are put together by `scripts/documentation/build.py`: run `make site`."""

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.nodes import find_pending_xref_condition

from flatwater import __version__

project = "Flatwater"
release = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 4
smartquotes = False  # `--config` in a sentence keeps its two dashes
highlight_language = "none"  # a fence without a language is output: nothing to colour

html_theme = "furo"
html_title = f"Flatwater {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

python_use_unqualified_type_names = True  # signatures name types in full for the links, and show them short
python_display_short_literal_types = True
add_module_names = False
toc_object_entries = False  # with them the navigation, which each page copies, takes a minute
nitpicky = True  # a type of this package that is defined nowhere is an error


def leave_foreign_types(_app: Sphinx, document: nodes.document) -> None:
    """Show types of other packages as text: looking for each among all our names takes most of a build."""
    for reference in list(document.findall(pending_xref)):
        if reference.get("refdomain") == "py" and not reference["reftarget"].startswith("flatwater."):
            short = find_pending_xref_condition(reference, "resolved")
            reference.replace_self(reference.children if short is None else short.children)


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("doctree-read", leave_foreign_types)
