// Figures are drawn when they come near, in the page's own colours.
(() => {
  const places = [...document.querySelectorAll('.figure-place')];
  if (!places.length) return;
  const line = 'rgba(128,128,128,.22)';
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line };
  const dress = (layout) => {
    const style = getComputedStyle(document.body);
    const template = JSON.parse(JSON.stringify(layout.template || {}));
    template.layout = { ...template.layout, font: { color: style.color } };
    for (const name of ['xaxis', 'yaxis']) template.layout[name] = { ...template.layout[name], ...axis };
    return { ...layout, template, autosize: true, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
      font: { family: style.fontFamily, size: 13, ...layout.font, color: style.color },
      modebar: { ...layout.modebar, bgcolor: 'rgba(0,0,0,0)', color: 'rgba(128,128,128,.8)' } };
  };
  const draw = (place) => {
    const stored = JSON.parse(place.nextElementSibling.textContent);
    if (stored.layout.width) { place.style.maxWidth = stored.layout.width + 'px'; delete stored.layout.width; }
    const config = { responsive: true, displaylogo: false, displayModeBar: 'hover', ...stored.config };
    Plotly.react(place, stored.data, dress(stored.layout), config).then(() => { place.dataset.drawn = 'yes'; });
  };
  const begin = () => {
    const near = new IntersectionObserver((seen) => seen.filter((e) => e.isIntersecting).forEach((e) => {
      near.unobserve(e.target);
      draw(e.target);
    }), { rootMargin: '600px' });
    places.forEach((place) => near.observe(place));
    addEventListener('beforeprint', () => places.filter((p) => !p.dataset.drawn).forEach(draw));
    new MutationObserver(() => places.filter((p) => p.dataset.drawn).forEach(draw))
      .observe(document.body, { attributes: true, attributeFilter: ['data-theme'] });
  };
  const library = document.createElement('script');  // 4 MB, for pages with figures alone
  library.src = new URL('plotly.min.js', document.querySelector('script[src*="site.js"]').src);
  library.onload = begin;
  document.head.append(library);
})();
