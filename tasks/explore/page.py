"""The explorer as one HTML page: the data, the drawing library and the scripts in one file, which asks nothing of a network."""

import re
from html import escape
from importlib.resources import files

from tasks.explore.library import library
from tasks.explore.payload import embedded
from tasks.released.sources.folder import PublishedFolder
from tasks.words.readers import title_of

EXPLORER = "explorer.html"

_SCRIPTS = (  # each imports from those before it
    "base",
    "combobox",
    "charts",
    "views",
    "areas",
    "state",
    "lists",
    "maps",
    "trips",
    "attributes",
    "begin",
)
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|const) (\w+))", re.MULTILINE)
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def explorer(folder: PublishedFolder) -> str:
    """Return the page of a folder. The same folder always gives the same page.

    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    return explorer_page(title_of(folder.manifest.spec, folder.manifest.id), embedded(folder))


def explorer_page(title: str, data: str) -> str:
    """Return the page with some data.

    Args:
        title: of the page, text.
        data: the payload as JSON, in which every `<` is escaped.
    """
    return _PAGE.format(
        title=escape(title),
        policy=_POLICY,
        style=_asset("explorer.css"),
        data=data,
        library=library(),
        script=_script(),
    )


def _script() -> str:
    """Return the scripts of this package as one: each is a function in it, which returns what its module exports."""
    return "\n".join(_as_function(name, _asset(f"{name}.js")) for name in _SCRIPTS)


def _as_function(name: str, module: str) -> str:
    exported = ", ".join(_EXPORT.findall(module))
    text = _EXPORT.sub("", _IMPORT.sub(r"const \1 = $\2;\n", module))
    return f"const ${name} = (() => {{\n{text}return {{ {exported} }};\n}})();"


def _asset(name: str) -> str:
    return (files("tasks.explore") / "assets" / name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<svg width="0" height="0" aria-hidden="true" class="unseen"><defs><pattern id="noise" width="6" height="6"
 patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect id="noise-ground" width="6" height="6"/><line id="noise-lines"
 y2="6" stroke-width="3"/></pattern></defs></svg>
<header>
<p class="kind">Counts with differential privacy, <span id="which"></span></p>
<h1>{title}</h1>
<p class="lead" id="about" hidden></p>
<p class="lead">Look numbers up: this page works without a network. <a href="report.html">The report</a> says how they were made.</p>
</header>
<main>
<div class="choose" id="choose-trips" hidden>
<div><label for="here">Area</label><input id="here" type="text" placeholder="Type a name or a code"></div>
<div><label for="other">To this area (optional)</label><input id="other" type="text" placeholder="Type a name or a code"></div>
<button type="button" id="clear" hidden>Start again</button>
</div>
<div class="choose" id="choose-attributes" hidden>
<div><label for="first">Attribute</label><select id="first"></select></div>
<div><label for="second">and attribute (optional)</label><select id="second"></select></div>
<div id="only-part" hidden><label for="only">of which only</label><select id="only"></select></div>
</div>
<p id="announced" class="unseen" role="status"></p>
<p id="unsettled" hidden>A field above still asks you to choose. These numbers are about what is chosen so far.</p>
<div id="answer" tabindex="-1"></div>
<div class="sides">
<section id="map-part" aria-labelledby="map-title" hidden>
<h2 id="map-title">Map</h2>
<div class="map-tools"><button type="button" id="nearer" aria-label="Enlarge the map">+</button>
<button type="button" id="farther" aria-label="Reduce the map">−</button>
<button type="button" id="whole">Whole map</button></div>
<p id="map-said"></p>
<div id="map"></div>
<ul class="keys"><li><svg aria-hidden="true"><rect width="100%" height="100%" fill="url(#noise)"/></svg> may be noise</li>
<li id="shades"></li><li><span class="none"></span> no count above 0</li><li id="here-key" hidden><span class="here"></span> the chosen area</li>
<li id="arcs-key"></li>
<li id="no-shape"></li><li id="click-key"></li></ul>
</section>
<section id="matrix-part" aria-labelledby="matrix-title" hidden>
<h2 id="matrix-title">Matrix</h2>
<div id="matrix"></div>
<ul class="keys"><li><svg aria-hidden="true"><rect width="100%" height="100%" fill="url(#noise)"/></svg> may be noise</li>
<li>darker: more</li><li>blank: no count above 0</li><li>click a cell to choose the pair</li></ul>
</section>
<section id="chart-part" aria-labelledby="chart-title" hidden>
<h2 id="chart-title">Chart</h2>
<div id="chart"></div>
<ul class="keys" id="chart-keys" hidden><li><svg aria-hidden="true"><rect width="100%" height="100%" fill="url(#noise)"/></svg> may be noise</li>
<li>darker: more</li><li>click a cell to read and quote it</li></ul>
</section>
<section aria-labelledby="list-title">
<h2 id="list-title">List</h2>
<div id="list"></div>
</section>
</div>
<section id="views-part" aria-labelledby="views-title" hidden>
<h2 id="views-title">Sums that were measured by themselves</h2>
<div id="views"></div>
</section>
<section id="left-out-part" aria-labelledby="left-out-title" hidden>
<h2 id="left-out-title">What this page leaves out</h2>
<ul id="left-out"></ul>
</section>
<section aria-labelledby="meaning-title">
<h2 id="meaning-title">What the numbers mean</h2>
<div id="meaning"></div>
</section>
</main>
<noscript><p>This page needs JavaScript. <a href="report.html">The report</a> and the tables do not.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script type="module">
{script}</script>
</body>
</html>
"""
