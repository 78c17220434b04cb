"""The API's pages and the sources with their lines, from what `reading` found"""

import html
import json
import re

from .reading import Entry, Module, Parameter

COLUMNS = ("", "type", "default", "meaning")


def inline(text: str, links, depth: int = 1) -> str:
    "Plain words as HTML; names in backticks as code, linked where they are known"

    def name(m):
        a = links.address(html.unescape(m[1]), depth)
        return f'<a href="{a}"><code>{m[1]}</code></a>' if a else f"<code>{m[1]}</code>"

    return re.sub(r"`([^`]+)`", name, html.escape(text, quote=False))


def table(
    parameters: list[Parameter],  # with their comments
    returns: Parameter | None,  # what comes out
    links,
) -> str:
    "Parameters and what comes out, as a table"

    def typed(text):  # names of our own classes are links; lines break between parts
        linked = re.sub(
            r"\b[A-Z]\w+\b",
            lambda m: f'<a href="{a}">{m[0]}</a>' if (a := links.address(m[0], 1)) else m[0],
            html.escape(text, quote=False),
        )
        return re.sub(r"([\[,|])(?![^<]*>)", r"\1<wbr>", linked)

    def line(p, name):
        default = "" if p.default is None else f"<code>{typed(p.default)}</code>"
        return f'<tr><th scope="row">{name}</th><td><code>{typed(p.type)}</code></td><td>{default}</td><td>{inline(p.comment, links)}</td></tr>'

    rows = [line(p, f"<code>{p.name}</code>") for p in parameters]
    if returns and returns.type != "None":
        rows.append(line(returns, "→"))
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{c}</th>' for c in COLUMNS)
    return f'<div class="wide"><table class="parameters"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def entry(e: Entry, module: str, links) -> str:
    "One symbol: heading, where it stands, how it is called, what it does, what goes in and comes out"
    level = "###" if e.kind == "method" else "##"
    kind = {"class": "class ", "constant": ""}.get(e.kind, "")
    source = f'<a class="source-link" href="../source/{module}.html#L{e.line}">source</a>'
    body = f'<p class="said">{inline(e.doc, links)}</p>' if e.doc else ""
    call = f'<pre class="call"><code>{html.escape(kind + e.signature)}</code></pre>'
    raw = f"{source}{call}{body}{table(e.parameters, e.returns, links)}"
    return f"{level} {e.name.replace('__', chr(92) + '_' + chr(92) + '_')} {{#{e.name}}}\n\n```{{=html}}\n{raw}\n```\n"


def api_page(
    m: Module,  # what to write about
    notebook: str,  # its page's address from the site's root
    title: str,  # of the notebook
    links,
) -> str:  # Markdown
    "A module's page"
    front = f"---\ntitle: {json.dumps(m.name)}\ndescription: {json.dumps(m.doc, ensure_ascii=False)}\n---\n\n"
    where = f'```{{=html}}\n<p class="told">Told and tested in <a href="../{notebook}">{html.escape(title)}</a> · <a href="../source/{m.name}.html">source</a> · <code>from dasd_lab.{m.name} import …</code></p>\n```\n'
    return front + where + "\n".join(entry(e, m.name, links) for e in m.entries)


def overview(
    stages: list[tuple[str, list[Module]]],  # title of a stage, its modules
    links,
) -> str:
    "All modules on one page, stage by stage"
    rows = "".join(
        f'<tr class="stage"><th colspan="2" scope="rowgroup">{html.escape(title)}</th></tr>'
        + "".join(
            f'<tr><th scope="row"><a href="{m.name}.html"><code>{m.name}</code></a></th><td>{inline(m.doc, links)}</td></tr>'
            for m in modules
        )
        for title, modules in stages
    )
    return f'---\ntitle: API reference\ndescription: Every module, along the data’s path\n---\n\n```{{=html}}\n<div class="wide"><table class="modules"><tbody>{rows}</tbody></table></div>\n```\n'


def source_page(m: Module) -> str:
    "A module's text with a place to link to on every line"
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lines = highlight(m.source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    body = "".join(
        f'<span class="line" id="L{i}"><a href="#L{i}" aria-label="line {i}">{i:4}</a> {l}\n</span>'
        for i, l in enumerate(lines, 1)
    )
    front = f"---\ntitle: {json.dumps('dasd_lab/' + m.name.replace('.', '/') + '.py')}\nsearch: false\npage-layout: full\ntoc: false\n---\n\n"
    return f'{front}```{{=html}}\n<p class="told"><a href="../api/{m.name}.html">API</a> · exported from its notebook; edit that, not this file</p>\n<pre class="listing"><code>{body}</code></pre>\n```\n'
