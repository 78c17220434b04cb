// Figures are drawn when they come near, in the page's own colours; the bar at the top knows the section one is in.
(() => {
  const line = 'rgba(128,128,128,.22)';
  const ink = () => getComputedStyle(document.body).color;
  const colours = () => {
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line };
    return { paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: { color: ink() }, axis };
  };
  const dress = (layout) => {
    const c = colours(), out = Object.assign({}, layout, { paper_bgcolor: c.paper_bgcolor, plot_bgcolor: c.plot_bgcolor });
    out.font = Object.assign({ family: getComputedStyle(document.body).fontFamily, size: 13 }, layout.font, c.font);
    const template = JSON.parse(JSON.stringify(layout.template || {}));
    template.layout = template.layout || {};
    for (const k of ['xaxis', 'yaxis']) template.layout[k] = Object.assign({}, template.layout[k], c.axis);
    template.layout.font = Object.assign({}, template.layout.font, c.font);
    out.template = template;
    out.modebar = Object.assign({}, layout.modebar, { bgcolor: 'rgba(0,0,0,0)', color: 'rgba(128,128,128,.8)' });
    out.autosize = true;
    return out;
  };
  const places = [...document.querySelectorAll('script[data-plotly]')].map(s => [document.getElementById(s.dataset.plotly), s]);
  const draw = (place, script) => {
    const f = JSON.parse(script.textContent), wide = f.layout && f.layout.width;
    if (wide) { place.style.maxWidth = wide + 'px'; delete f.layout.width; }
    Plotly.newPlot(place, f.data, dress(f.layout || {}), Object.assign({ responsive: true, displaylogo: false, displayModeBar: 'hover' }, f.config)).then(() => place.dataset.drawn = 'yes');
  };
  if (window.Plotly && places.length) {
    const near = new IntersectionObserver(seen => seen.filter(e => e.isIntersecting).forEach(e => {
      near.unobserve(e.target); const p = places.find(p => p[0] === e.target); draw(...p); }), { rootMargin: '600px' });
    places.forEach(p => near.observe(p[0]));
    addEventListener('beforeprint', () => places.filter(p => !p[0].dataset.drawn).forEach(p => draw(...p)));
    new MutationObserver(() => places.filter(p => p[0].dataset.drawn).forEach(p => draw(...p))).observe(document.documentElement, { attributes: true, attributeFilter: ['class'] });
  }
  const side = new Set([...document.querySelectorAll('#quarto-sidebar a[href]')].map(a => a.href.split('#')[0]));
  document.querySelectorAll('.navbar-nav.me-auto a.nav-link').forEach(a => { if (side.has(a.href.split('#')[0])) a.classList.add('active'); });
  // wide tables and listings can be scrolled by the keyboard as well
  document.querySelectorAll('.wide, pre').forEach(e => { if (e.scrollWidth > e.clientWidth + 1) e.tabIndex = 0; });
})();
