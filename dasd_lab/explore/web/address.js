function render({model, el}) {
  el.style.display = 'none';
  const query = () => new URLSearchParams(location.search).toString();
  let opening = false;  // what is shown next is what the address says
  const open = () => {
    opening = true;
    model.send(Object.fromEntries(new URLSearchParams(location.search)));
  };
  const show = () => {
    const shown = new URLSearchParams(model.get('shown')).toString();
    const address = shown ? `?${shown}` : location.pathname;
    if (shown !== query()) history[opening ? 'replaceState' : 'pushState'](null, '', address);
    opening = false;
  };
  model.on('change:shown', show);
  window.addEventListener('popstate', open);
  if (query()) open();
  return () => window.removeEventListener('popstate', open);
}
export default { render };
