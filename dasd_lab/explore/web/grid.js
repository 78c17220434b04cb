function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function captionList(captions) {
  const list = element('ul', {class: 'dl-told'});
  for (const caption of captions) {
    const attributes = {lang: caption.language, dir: caption.direction || 'auto'};
    list.append(element('li', attributes, element('i', {dir: 'ltr'}, caption.language), ' ' + caption.text));
  }
  return list;
}

function card(item, model) {
  const size = model.get('size');
  const rank = item.rank === undefined ? '' : `${item.rank}`;
  const score = item.score === undefined ? '' : item.score.toFixed(3);
  const title = item.label ? `${rank} ${item.label}`.trim() : rank;
  const foot = element('span', {class: 'dl-foot', dir: 'ltr'},
    element('b', {}, title), element('span', {class: 'dl-score'}, score));
  const description = [rank && `rank ${rank}`, score && `score ${score}`, item.label, item.alt];
  const attributes = {
    class: 'dl-hit' + (item.marked ? ' dl-marked' : ''),
    type: 'button',
    'data-id': item.id,
    title: item.alt,
    'aria-label': description.filter(Boolean).join(', '),
  };
  const image = element('img', {src: item.src, alt: item.alt, width: size, height: size});
  const captions = model.get('show_captions') ? item.captions || [] : [];
  return element('li', {}, element('button', attributes, image, foot), captionList(captions));
}

function render({model, el}) {
  el.classList.add('dl-pictures');
  const list = element('ul', {class: 'dl-grid'});
  el.append(list);
  const hits = () => [...list.querySelectorAll('.dl-hit')];
  const mark = () => hits().forEach(
    hit => hit.setAttribute('aria-pressed', hit.dataset.id === model.get('selected')));
  const draw = () => {
    const focused = document.activeElement?.dataset?.id;
    list.setAttribute('aria-label', model.get('name'));
    list.style.setProperty('--dl-width', `${model.get('size') + 14}px`);
    list.dir = model.get('rtl') ? 'rtl' : 'ltr';
    list.replaceChildren(...model.get('items').map(item => card(item, model)));
    mark();
    if (focused && !el.contains(document.activeElement)) {
      hits().find(hit => hit.dataset.id === focused)?.focus({preventScroll: true});
    }
  };

  list.addEventListener('click', event => {
    const hit = event.target.closest('.dl-hit');
    if (!hit) return;
    model.set('selected', hit.dataset.id);
    model.set('clicked', hit.dataset.id);
    model.set('clicks', model.get('clicks') + 1);
    model.save_changes();
  });
  list.addEventListener('keydown', event => {
    const all = hits();
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const columns = all.filter(hit => hit.offsetTop === all[0].offsetTop).length;
    const forward = model.get('rtl') ? -1 : 1;
    const steps = {ArrowRight: forward, ArrowLeft: -forward, ArrowDown: columns, ArrowUp: -columns};
    const step = steps[event.key];
    if (step === undefined) {
      if (event.key !== 'Tab') event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    all[Math.min(all.length - 1, Math.max(0, at + step))].focus();
  });
  for (const name of ['items', 'size', 'rtl', 'show_captions', 'name']) model.on('change:' + name, draw);
  model.on('change:selected', mark);
  draw();
}
export default { render };
