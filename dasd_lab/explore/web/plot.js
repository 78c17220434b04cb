globalThis.dlPlotly ??= new Promise(resolve => { globalThis.dlPlotlyLoaded = resolve; });
// plotly always shows its bar where nothing hovers, as on a phone: there only where points are selected with it
const touched = matchMedia('(hover: none)').matches;
const HOVER_MS = 300;  // a hover event this long after the last mouse movement comes from drawing
const RELEASE_MS = 500;  // plotly reports a selection this long after the mouse is released

const firstTracePoints = event =>
  (event?.points || []).filter(p => p.curveNumber === 0).map(p => p.pointIndex);

const LETTER = 7.6;  // mean width in pixels
const LINE = 19;  // height in pixels

// A title that does not fit is broken between words, and the figure grows by its further lines
function withTitle(layout, width) {
  const text = layout.title?.text;
  if (!text || text.includes('<')) return layout;
  const lines = [''];
  for (const word of text.split(' ')) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length * LETTER <= width - 48 || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  const more = LINE * (lines.length - 1);
  const margin = {...layout.margin, t: (layout.margin?.t ?? 60) + more};
  return {...layout, title: {...layout.title, text: lines.join('<br>')}, margin, height: layout.height + more};
}

function render({model, el}) {
  let plotly;
  let width = 0;
  let specText;
  let spec;
  let listening = false;
  let revision = 0;
  let figures = 0;  // shown so far: a zoom is kept until the next one
  let mouseDown = false;
  let redrawLater = false;
  let drawWhenShown = false;  // the container has no width while its tab is hidden
  let lastMove = 0;

  const FIELD = 76;  // pixels, for one thumbnail
  const sendView = () => {
    const axes = [el._fullLayout?.xaxis, el._fullLayout?.yaxis];
    if (!axes[0]?.range) return;
    model.send({view: axes.map(axis => [...axis.range, Math.max(3, Math.round(axis._length / FIELD))])});
  };
  model.on('msg:custom', message => {
    if (message.images && el._fullLayout) plotly.relayout(el, {images: message.images});
  });

  const listen = () => {
    listening = true;
    el.on('plotly_relayout', event => {
      if (!('images' in event)) sendView();
    });
    // only selections made with the mouse are reported, not those that a redraw restores
    el.on('plotly_selected', event => {
      if (mouseDown) model.send({selected: firstTracePoints(event)});
    });
    el.on('plotly_deselect', () => {
      if (mouseDown) model.send({selected: []});
    });
    el.on('plotly_hover', event => {
      const [point] = firstTracePoints(event);
      const fromMouse = !mouseDown && Date.now() - lastMove < HOVER_MS;
      if (point !== undefined && fromMouse) model.send({hover: point});
    });
  };

  const draw = () => {
    if (mouseDown) {  // drawing now would end a lasso
      redrawLater = true;
      return;
    }
    if (!plotly) return;
    drawWhenShown = !el.clientWidth;
    if (drawWhenShown) return;
    if (specText !== model.get('spec')) {
      specText = model.get('spec');
      spec = JSON.parse(specText);
      figures += 1;
    }
    width = el.clientWidth;
    if (!spec.layout) {
      plotly.purge(el);
      el.replaceChildren();
      listening = false;
      return;
    }
    el.setAttribute('role', 'group');
    el.setAttribute('aria-label', spec.layout.title?.text?.replace(/<[^>]*>/g, ' ') || 'figure');
    const data = spec.data.map(trace => ({...trace}));
    for (const [i, properties] of JSON.parse(model.get('changes'))) Object.assign(data[i], properties);
    revision += 1;  // the selection comes from the kernel
    const layout = {
      modebar: {orientation: 'v', bgcolor: 'rgba(0,0,0,0)', color: '#757b82', activecolor: '#4477aa'},  // beside the title
      ...withTitle(spec.layout, width), width: undefined, autosize: true, selectionrevision: revision,
      uirevision: spec.layout.uirevision ?? figures,
    };
    const displayModeBar = touched ? model.get('listens') : 'hover';
    plotly.react(el, data, layout, {displaylogo: false, displayModeBar, showSendToCloud: false});
    if (model.get('listens') && !listening) listen();
    if (listening) sendView();
  };

  const press = () => { mouseDown = true; };
  const release = () => {
    if (!mouseDown) return;
    setTimeout(() => {
      mouseDown = false;
      if (redrawLater) {
        redrawLater = false;
        draw();
      }
    }, RELEASE_MS);
  };
  const resized = new ResizeObserver(() => {
    if (!plotly || !el.clientWidth) return;
    if (drawWhenShown || (el._fullLayout && el.clientWidth !== width)) draw();  // a title is broken anew
  });

  model.on('change:spec change:changes', draw);
  resized.observe(el);
  el.addEventListener('mousedown', press, true);
  el.addEventListener('mousemove', () => { lastMove = Date.now(); }, true);
  window.addEventListener('mouseup', release, true);
  globalThis.dlPlotly.then(loaded => {
    plotly = loaded;
    draw();
  });
  return () => {
    resized.disconnect();
    window.removeEventListener('mouseup', release, true);
    model.off('change:spec change:changes', draw);
    if (plotly) plotly.purge(el);
    plotly = undefined;
  };
}
export default { render };
