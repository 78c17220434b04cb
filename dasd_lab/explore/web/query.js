function render({model, el}) {
  el.classList.add('dl-query');
  const form = document.createElement('form');
  const input = document.createElement('input');
  const button = document.createElement('button');
  const hint = document.createElement('div');
  form.setAttribute('role', 'search');
  input.type = 'search';
  input.dir = 'auto';
  input.autocomplete = 'off';
  input.spellcheck = false;
  button.type = 'submit';
  hint.className = 'dl-hint';
  hint.setAttribute('aria-live', 'polite');
  form.append(input, button);
  el.append(form, hint);

  let timer = null;
  const send = () => {
    clearTimeout(timer);
    timer = null;
    if (model.get('value') !== input.value) {
      model.set('value', input.value);
      model.save_changes();
    }
  };
  const show = () => {
    if (input.value !== model.get('value') && !timer) input.value = model.get('value');
    input.placeholder = model.get('placeholder');
    input.setAttribute('aria-label', model.get('placeholder') || model.get('label'));
    button.textContent = model.get('label');
    hint.textContent = model.get('hint');
  };

  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(send, 180);
  });
  input.addEventListener('keydown', event => event.stopPropagation());  // JupyterLab has one-key commands
  form.addEventListener('submit', event => {
    event.preventDefault();
    send();
    model.set('submitted', model.get('submitted') + 1);
    model.save_changes();
  });
  for (const name of ['value', 'placeholder', 'hint', 'label']) model.on('change:' + name, show);
  show();
}
export default { render };
