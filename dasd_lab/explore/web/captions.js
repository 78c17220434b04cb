const BLANK = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=';
const REQUEST_DELAY = 80;  // ms; images that come into view together are requested together

function render({model, el}) {
  el.classList.add('dl-captions');
  const known = new Map();  // image id → address
  let wanted = new Set();
  let timer;
  const list = document.createElement('ul');
  el.append(list);

  const request = () => {
    timer = undefined;
    if (wanted.size) model.send({wanted: [...wanted]});
    wanted = new Set();
  };
  const visibility = new IntersectionObserver(entries => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      const image = entry.target;
      visibility.unobserve(image);
      if (known.has(image.dataset.id)) {
        image.src = known.get(image.dataset.id);
      } else {
        wanted.add(image.dataset.id);
        timer ??= setTimeout(request, REQUEST_DELAY);
      }
    }
  }, {root: list, rootMargin: '120px'});

  const picture = item => {
    const image = document.createElement('img');
    image.dataset.id = item.id;
    image.alt = item.alt || '';
    image.title = item.alt || '';
    image.width = 40;
    image.height = 40;
    image.src = BLANK;
    visibility.observe(image);
    return image;
  };
  const line = item => {
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.index = item.index;
    if (item.id) button.append(picture(item)); else button.classList.add('dl-no-image');
    const text = document.createElement('bdi');
    text.lang = item.language;
    text.dir = item.direction;
    text.textContent = item.text;
    const label = document.createElement('small');
    label.textContent = item.label;
    label.dir = 'ltr';
    button.append(text, label);
    const entry = document.createElement('li');
    entry.append(button);
    return entry;
  };
  const buttons = () => [...list.querySelectorAll('button')];
  const mark = () => buttons().forEach(
    button => button.setAttribute('aria-pressed', +button.dataset.index === model.get('clicked')));
  const draw = () => {
    list.setAttribute('aria-label', model.get('name'));
    visibility.disconnect();
    list.replaceChildren(...model.get('items').map(line));
    list.scrollTop = 0;
    mark();
  };

  list.addEventListener('click', event => {
    const button = event.target.closest('button');
    if (!button) return;
    model.set('clicked', +button.dataset.index);
    model.set('clicks', model.get('clicks') + 1);
    model.save_changes();
  });
  list.addEventListener('keydown', event => {
    if (event.key !== 'Tab') event.stopPropagation();
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const all = buttons();
    const at = all.indexOf(document.activeElement);
    all[Math.min(all.length - 1, Math.max(0, at + step))]?.focus();
  });
  model.on('msg:custom', message => {
    for (const [id, source] of Object.entries(message.pictures || {})) {
      known.set(id, source);
      const images = list.querySelectorAll(`img[data-id="${CSS.escape(id)}"]`);
      images.forEach(image => { image.src = source; });
    }
  });
  model.on('change:items', draw);
  model.on('change:clicked', mark);
  draw();
  return () => {
    visibility.disconnect();
    clearTimeout(timer);
  };
}
export default { render };
