"""Pages of the API and of the sources, from what `reading` found"""

import html
import json
import re

from .reading import Entry, Module, Parameter

COLUMNS = ("", "type", "default", "meaning")


def raw(text: str) -> str:
    "HTML as a block of Markdown"
    return f"```{{=html}}\n{text}\n```\n"


def front_matter(**settings: str) -> str:
    "Front matter of a page"
    lines = [f"{name}: {value}\n" for name, value in settings.items()]
    return f"---\n{''.join(lines)}---\n\n"


def inline(text: str, links, depth: int = 1) -> str:
    "Plain text as HTML; names in backticks as code, linked where they are known"

    def name(m):
        address = links.address(html.unescape(m[1]), depth)
        return f'<a href="{address}"><code>{m[1]}</code></a>' if address else f"<code>{m[1]}</code>"

    return re.sub(r"`([^`]+)`", name, html.escape(text, quote=False))


def type_html(text: str, links) -> str:
    "A type or default: our classes are links, and lines can break between its parts"

    def name(m):
        address = links.address(m[0], 1)
        return f'<a href="{address}">{m[0]}</a>' if address else m[0]

    linked = re.sub(r"\b[A-Z]\w+\b", name, html.escape(text, quote=False))
    return re.sub(r"([\[,|])(?![^<]*>)", r"\1<wbr>", linked)


def parameter_row(p: Parameter, name: str, links) -> str:
    "A row of the table of parameters"
    default = "" if p.default is None else f"<code>{type_html(p.default, links)}</code>"
    cells = (f"<code>{type_html(p.type, links)}</code>", default, inline(p.comment, links))
    return f'<tr><th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def table(
    parameters: list[Parameter],  # with their comments
    returns: Parameter | None,  # return value
    links,
) -> str:
    "Parameters and return value as a table"
    rows = [parameter_row(p, f"<code>{p.name}</code>", links) for p in parameters]
    if returns and returns.type != "None":
        rows.append(parameter_row(returns, "→", links))
    if not rows:
        return ""
    columns = "".join(f'<th scope="col">{column}</th>' for column in COLUMNS)
    body = f"<thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table class="parameters">{body}</table></div>'


def entry(e: Entry, module: str, links) -> str:
    "One symbol: heading, link to the source, signature, docstring, parameters"
    level = "###" if e.kind == "method" else "##"
    kind = {"class": "class ", "constant": ""}.get(e.kind, "")
    source = f'<a class="source-link" href="../source/{module}.html#L{e.line}">source</a>'
    body = f'<p class="said">{inline(e.doc, links)}</p>' if e.doc else ""
    call = f'<pre class="call"><code>{html.escape(kind + e.signature)}</code></pre>'
    title = e.name.replace("__", r"\_\_")
    content = f"{source}{call}{body}{table(e.parameters, e.returns, links)}"
    return f"{level} {title} {{#{e.name}}}\n\n{raw(content)}"


def api_page(
    m: Module,
    notebook: str,  # address of its notebook's page from the site's root
    title: str,  # of the notebook
    links,
) -> str:  # Markdown
    "A module's page"
    front = front_matter(title=json.dumps(m.name), description=json.dumps(m.doc, ensure_ascii=False))
    where = (
        f'Explained and tested in <a href="../{notebook}">{html.escape(title)}</a> · '
        f'<a href="../source/{m.name}.html">source</a> · <code>from dasd_lab.{m.name} import …</code>'
    )
    return front + raw(f'<p class="told">{where}</p>') + "\n".join(entry(e, m.name, links) for e in m.entries)


def module_row(m: Module, links) -> str:
    "A row of the overview"
    link = f'<a href="{m.name}.html"><code>{m.name}</code></a>'
    return f'<tr><th scope="row">{link}</th><td>{inline(m.doc, links)}</td></tr>'


def overview(
    stages: list[tuple[str, list[Module]]],  # title of a stage, its modules
    links,
) -> str:
    "All modules on one page, stage by stage"
    rows = []
    for title, modules in stages:
        rows.append(f'<tr class="stage"><th colspan="2" scope="rowgroup">{html.escape(title)}</th></tr>')
        rows += [module_row(m, links) for m in modules]
    front = front_matter(title="API reference", description="Every module, along the data’s path")
    return front + raw(f'<div class="wide"><table class="modules"><tbody>{"".join(rows)}</tbody></table></div>')


def source_page(m: Module) -> str:
    "A module's source with an anchor on every line"
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lines = highlight(m.source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    body = []
    for i, line in enumerate(lines, 1):
        anchor = f'<a href="#L{i}" aria-label="line {i}">{i:4}</a>'
        body.append(f'<span class="line" id="L{i}">{anchor} {line}\n</span>')
    file = f"dasd_lab/{m.name.replace('.', '/')}.py"
    front = front_matter(title=json.dumps(file), search="false", **{"page-layout": "full", "toc": "false"})
    link = f'<a href="../api/{m.name}.html">API</a>'
    note = f'<p class="told">{link} · exported from its notebook; edit that, not this file</p>'
    return front + raw(f'{note}\n<pre class="listing"><code>{"".join(body)}</code></pre>')
