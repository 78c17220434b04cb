"Runs side by side in JupyterLab: the guide from top to bottom, and the panel as a person uses it"

import re

import nbformat
from conftest import STATE, open_guide, run_notebook, shoot


def chosen(page):
    return page.locator(".dl-compare .dl-asked")


def test_panel(lab, page):
    "Evaluate, read the tables, list queries, look at one; nothing breaks in the light at 1600 pixels and in the dark at 1024"
    nb = nbformat.v4.new_notebook(
        metadata=dict(kernelspec=dict(name="python3", display_name="Python 3")),
        cells=[nbformat.v4.new_code_cell("from dasd_lab.explore.comparison.panel import Compare\nCompare()")],
    )
    nbformat.write(nb, lab.notebooks / "short_comparison.ipynb")
    page.set_viewport_size(dict(width=1600, height=1400))
    run_notebook(page, "short_comparison.ipynb")
    assert not page.evaluate(STATE)["errors"]
    panel = page.locator(".dl-compare")
    panel.wait_for(timeout=300_000)
    assert (
        panel.locator(".dl-run input:checked").count() >= 2
        and panel.locator(".dl-settings td", has_text=re.compile("^method$")).count() == 1
    )
    assert panel.locator(".dl-queries .dl-hit").count() == 0
    panel.locator(".dl-n select").select_option("100 pictures")
    panel.locator(".dl-which select").select_option(label="Arabic · العربية")
    panel.locator(".dl-evaluate").click()
    panel.locator(".dl-table td", has_text="Arabic").wait_for(timeout=300_000)
    panel.locator(".dl-apart-table td", has_text="Arabic").wait_for(timeout=300_000)
    for place in ("dl-recall", "dl-apart-figure", "dl-gaps"):
        panel.locator(f".{place} .main-svg").first.wait_for()
    panel.locator(".dl-kinds button", has_text=re.compile("^both")).click()
    panel.locator(".dl-queries .dl-hit").nth(11).wait_for()
    assert (
        panel.locator(".dl-queries .dl-told li[lang=ar][dir=rtl]").count() == 12
        and panel.locator(".dl-queries .dl-grid").get_attribute("dir") == "rtl"
    )
    before = chosen(page).inner_text()
    panel.locator(".dl-queries .dl-hit").nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_function(
        't => ![undefined, t].includes(document.querySelector(".dl-compare .dl-asked")?.innerText)', arg=before
    )
    assert chosen(page).locator("bdi").get_attribute("dir") == "rtl"
    for i in (0, 1):
        own = panel.locator(f".dl-found-{i} .dl-marked")
        own.filter(has_text="1 own").wait_for()
        assert own.count() == 1  # in place of what the query before found
        assert all(
            panel.locator(f".dl-found-{i} img").evaluate_all(
                "a => a.map(i => i.alt && i.complete && i.naturalWidth > 0)"
            )
        )
    if panel.locator(".dl-next:enabled").count():
        panel.locator(".dl-next").click()
        panel.locator('.dl-queries [data-id="12"]').wait_for()
    panel.locator(".dl-folder input").fill("/nowhere/at/all")
    panel.locator(".dl-folder input").press("Tab")
    panel.locator(".dl-add").click()
    panel.locator(".dl-message", has_text="no folder").wait_for()
    for theme, width in (("Light", 1600), ("Dark", 1024)):
        page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme: `JupyterLab ${theme}`})",
            theme,
        )
        page.set_viewport_size(dict(width=width, height=1400))
        page.wait_for_timeout(2000)
        wide = page.evaluate(
            "() => { const p = document.querySelector('.dl-compare'), r = p.getBoundingClientRect().right + 1; return [...p.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > r && !e.closest('.dl-scroll,svg,.js-plotly-plot')).map(e => e.className).slice(0, 5) }"
        )
        assert not wide, wide
        page.evaluate("() => document.querySelector('.dl-compare .dl-table').scrollIntoView()")
        shoot(page, f"comparison_{theme.lower()}_{width}")
    assert not page.outside and not page.problems, (page.outside, page.problems)


def test_guide(lab, page):
    book = open_guide(page, "compare_runs")
    panel = book.locator(".dl-compare").last
    panel.locator(".dl-apart-table td", has_text="German").wait_for()
    for place in ("dl-curves", "dl-recall", "dl-apart-figure", "dl-gaps"):
        panel.locator(f".{place} .main-svg").first.wait_for()
    assert panel.locator(".dl-run", has_text="seed 0").count() == 1
    panel.locator(".dl-language select").select_option(label="Arabic · العربية")
    panel.locator(".dl-kinds button", has_text=re.compile("^both")).click()
    panel.locator(".dl-queries [lang=ar]").first.wait_for()
    panel.scroll_into_view_if_needed()
    assert not page.outside and not page.problems, (page.outside, page.problems)
