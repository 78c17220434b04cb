if (!globalThis.dlTimeout) {
  globalThis.dlTimeout = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = ms => globalThis.dlTimeout(ms === 2000 ? 60000 : ms);
}
globalThis.dlPlotly ??= new Promise(resolve => { globalThis.dlPlotlyLoaded = resolve; });

function announceToggles() {  // ipywidgets shows the state of a toggle button by its colour only
  for (const button of document.querySelectorAll('.dl .widget-toggle-button')) {
    const pressed = String(button.classList.contains('mod-active'));
    if (button.getAttribute('aria-pressed') !== pressed) button.setAttribute('aria-pressed', pressed);
  }
}

function initialize({model}) {
  model.set('languages', [...navigator.languages]);
  model.save_changes();
  if (globalThis.dlPlotlyRequested) return;
  globalThis.dlPlotlyRequested = true;
  const changes = {subtree: true, childList: true, attributes: true, attributeFilter: ['class']};
  new MutationObserver(announceToggles).observe(document.body, changes);
  // hide the module loaders of the page, so that plotly defines window.Plotly
  const source = ['(function(define, module, exports) {', model.get('script'), '})();'];
  const script = document.createElement('script');
  script.src = URL.createObjectURL(new Blob(source, {type: 'text/javascript'}));
  script.onload = () => globalThis.dlPlotlyLoaded(window.Plotly);
  document.head.append(script);
}
export default { initialize };
