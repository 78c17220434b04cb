// The field of the first page: photographs ranked by a query, in the browser alone. demo.py makes what it loads.
(() => {
  const place = document.getElementById('try');
  if (!place) return;
  const home = new URL('demo/', document.currentScript.src);
  const SHOWN = 12;
  const SCALE = 1.2;  // difference of a matrix from the mean that has the full colour
  const PAUSE = 150;  // ms without a key before a query is read
  const EXAMPLES = [['de', 'Pferde auf einer Wiese'], ['zh', '一只黑白相间的小猫'], ['ar', 'برج عالٍ في المدينة'],
    ['en', 'a bridge over the river'], ['hi', 'लाल मछलियाँ']];

  // ---- files
  const bytesOf = async (file, count = () => {}) => {
    const response = await fetch(new URL(file, home));
    if (!response.ok) throw new Error(`${file}: ${response.status}`);
    const pieces = [];
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      pieces.push(value);
      count(value.length);
    }
    const blob = new Blob(pieces);
    const start = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
    const isPacked = start[0] === 0x1f && start[1] === 0x8b;  // some servers unpack it themselves
    const stream = isPacked ? blob.stream().pipeThrough(new DecompressionStream('gzip')) : blob.stream();
    return new Response(stream).arrayBuffer();
  };
  const jsonOf = (buffer) => JSON.parse(new TextDecoder().decode(buffer));
  const bytesIn = (part) => Object.values(facts.parts[part]).reduce((sum, size) => sum + size, 0);
  const megabytes = (...parts) => Math.ceil(parts.reduce((sum, part) => sum + bytesIn(part), 0) / 1e6);
  let facts, ort, Tokenizer;
  const data = {};  // file without its endings → what it holds
  const ready = new Set();  // parts
  let wantsConcepts = false;
  const wordsIn = ({ known, words }) => ({ known, words: Object.fromEntries(Object.entries(words).map(([code, own]) => [code, new Set(own)])) });
  const open = async (file, buffer) => {
    const [name, kind] = file.split('.');
    if (kind === 'bin') data[name] = new Float32Array(buffer);
    else if (kind === 'tokens') data[`${name}.tokens`] = new Tokenizer(jsonOf(buffer), {});
    else if (kind === 'json') data.words = wordsIn(jsonOf(buffer));
    else if (kind === 'wasm') ort.env.wasm.wasmBinary = buffer;
    else data[name] = await ort.InferenceSession.create(new Uint8Array(buffer), { executionProviders: ['wasm'] });
  };
  const loadPart = async (part) => {
    if (!ort) {
      [ort, { Tokenizer }] = await Promise.all(['ort.wasm.min.mjs', 'tokenizers.min.mjs'].map((name) => import(new URL(name, home))));
      ort.env.wasm.numThreads = 1;
      ort.env.wasm.wasmPaths = home.href;
    }
    const names = Object.keys(facts.parts[part]);
    Object.assign(bar, { max: bytesIn(part), value: 0, hidden: false });
    const buffers = await Promise.all(names.map((file) => bytesOf(file, (n) => { bar.value += n; })));
    for (const [i, file] of names.entries()) await open(file, buffers[i]);
    bar.hidden = true;
    ready.add(part);
  };
  const NAMES = { common: 'ONNX Runtime and the photographs', taught: 'the model of the taught languages',
    english: 'the English text tower', others: 'multilingual E5, for concepts and other languages' };
  const need = async (part) => {
    if (ready.has(part)) return;
    say(`Loading ${NAMES[part]}, ${megabytes(part)} MB …`);
    await loadPart(part);
  };

  // ---- numbers
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const unit = (a) => { const length = Math.sqrt(dot(a, a)) || 1; return a.map((x) => x / length); };
  const plus = (a, b, weight = 1) => a.map((x, i) => x + weight * b[i]);
  const rowsOf = (matrix, width) => Array.from({ length: matrix.length / width }, (_, i) => matrix.subarray(i * width, (i + 1) * width));
  const mean = (a) => a.reduce((sum, x) => sum + x, 0) / a.length;

  // ---- words, as corpora.captions and backbone.concept_words read them
  const UNSPACED = '\\p{sc=Thai}\\p{sc=Lao}\\p{sc=Myanmar}\\p{sc=Khmer}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Han}\\u30fc';
  const RUNS = new RegExp(`(?<unspaced>[[${UNSPACED}]&&[\\p{L}\\p{M}]]+)|[[\\p{L}\\p{M}]--[${UNSPACED}]]+`, 'gv');
  const wordsOf = (text) => [...text.toLowerCase().matchAll(RUNS)].flatMap(({ 0: run, groups }) => {
    const letters = groups.unspaced ? [...run] : [];
    return letters.length > 1 ? letters.slice(1).map((letter, i) => letters[i] + letter) : [run];
  });
  const plain = (text) => {
    const kept = /\p{sc=Han}|\p{sc=Hiragana}|\p{sc=Katakana}/u.test(text) ? /[^，！？：；（）]+/gu : /.+/gsu;
    return text.trim().replace(/_|#(?=[\p{L}\p{N}])/gu, ' ').replace(/\s+/gu, ' ').replace(/[´`′]/gu, "'")
      .replace(kept, (part) => part.normalize('NFKC')).replace(/[‘’‚‛ʼ‹›]/gu, "'").replace(/[“”„«»]/gu, '"').replace(/[‐‑‒–—]/gu, '-')
      .replace(/[\u0640\u064b-\u065f\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]/gu, '')
      .replace(/^(?:[\s¡¿!?*•·>|,;:–-]|\.\.+)+(?=.*[\p{L}\p{N}])|(?<=[\p{L}\p{N}].*)(?:[\s!?！？~*|/,;:，；：、]|\.\.+)+\.?$/gu, '');
  };
  const unknownWords = (text, language) => {
    const known = data.words.words[language];
    return known ? wordsOf(text).filter((word) => !known.has(word)) : [];
  };
  const unknownShare = (text, language) => {
    const words = wordsOf(text);
    if (!words.length || words.length > facts.concepts.few) return null;
    return 1 - words.reduce((sum, word) => sum + (data.words.known[language]?.[word] ?? 0), 0) / words.length;
  };
  const conceptWeight = (text, language) => {
    const { in_sentence, of_known, of_known_word, of_unknown } = facts.concepts;
    const unknown = unknownShare(text, language);
    if (unknown === null) return in_sentence;
    return (wordsOf(text).length === 1 ? of_known_word : of_known) ** (1 - unknown) * of_unknown ** unknown;
  };
  const files = {};
  const kept = (file) => (files[file] ??= bytesOf(file).catch((error) => { delete files[file]; throw error; }));
  const namesIn = (language) => kept(`names/${language}.json`).then(jsonOf);
  const englishNamed = async (text, language) => {
    const names = await namesIn(language);
    let words = text.toLowerCase().match(/[^\s,;.!?、，。]+/gu) || [];
    const found = [];
    while (words.length) {
      let n = words.length;
      while (n && !Object.hasOwn(names, words.slice(0, n).join(' '))) n -= 1;
      if (n) found.push(names[words.slice(0, n).join(' ')]);
      words = words.slice(n || 1);
    }
    return found.join(', ');
  };
  let last = 'en';  // language of the query before
  const languageOf = async (text) => {  // by its letters; of Latin ones by its words, and by CLDR's names of things
    const script = Object.keys(facts.scripts).find((name) => new RegExp(`\\p{sc=${name}}`, 'u').test(text));
    if (script) return facts.scripts[script];
    const missing = Object.fromEntries(facts.latin.map((code) => [code, unknownWords(text, code).length]));
    const least = Math.min(...Object.values(missing));
    const likely = facts.latin.filter((code) => missing[code] === least);
    const names = least ? await Promise.all(likely.map(namesIn)) : [];
    const named = likely.filter((_, i) => names[i] && Object.hasOwn(names[i], text.toLowerCase()));
    return named.length === 1 ? named[0] : likely.includes(last) ? last : likely[0];
  };

  // ---- the model
  const idsOf = (name, text) => {
    const [start, end, longest] = facts.frames[name];
    return [start, ...data[`${name}.tokens`].encode(text, { add_special_tokens: false }).ids.slice(0, longest - 2), end];
  };
  const whole = (values, shape) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), shape);
  const vectorsOf = async (name, ids) => {
    const { width } = facts;
    const rows = await Promise.all(ids.map(async (id) => {
      const buffer = await kept(`${name}/${Math.floor(id / facts.rows)}.bin`);
      const n = buffer.byteLength / (width + 4);
      const [scale] = new Float32Array(buffer, 4 * (id % facts.rows), 1);
      return Float32Array.from(new Int8Array(buffer, 4 * n + width * (id % facts.rows), width), (level) => level * scale);
    }));
    return new ort.Tensor('float32', rows.reduce((all, row, i) => { all.set(row, i * width); return all; },
      new Float32Array(rows.length * width)), [1, ids.length, width]);
  };
  const computed = async (name, ...inputs) => {
    const session = data[name];
    const found = await session.run(Object.fromEntries(session.inputNames.map((input, i) => [input, inputs[i]])));
    return session.outputNames.map((output) => found[output].data);
  };
  const fromVectors = async (name, text) => {
    const ids = idsOf(name, text);
    return computed(name, await vectorsOf(name, ids), whole([ids.length - 1], [1]));
  };
  const recent = new Map();  // a query is read for its concepts and by the companion
  const sentence = async (words) => {  // its vector, and the features of the companion
    if (recent.size > 64) recent.clear();
    if (!recent.has(words)) recent.set(words, await fromVectors('sentences', facts.prompt + words));
    return recent.get(words);
  };
  const read = async (text, language) => {  // features, and the matrices of a caption with adapters
    if (language === 'en') return fromVectors('source', text);
    if (facts.taught.includes(language)) {
      const ids = idsOf('text', text);
      return computed('text', whole(ids, [1, ids.length]), whole([ids.length - 1], [1]), whole([facts.taught.indexOf(language)], []));
    }
    return [(await sentence(text))[1]];
  };
  const sharesOf = (concept) => {  // of the classes
    const shares = rowsOf(data.classes, concept.length).map((row) => Math.exp(facts.concepts.sharpness * (dot(row, concept) - 1)));
    const total = shares.reduce((sum, x) => sum + x, 0);
    return shares.map((x) => x / total);
  };
  const conceptOf = async (text, language) => {
    const unknown = unknownShare(text, language);
    const name = unknown === null ? '' : await englishNamed(text, language);
    const centred = async (words) => unit(plus(unit((await sentence(words))[0]), data.centre, -1));
    let own = await centred(text);
    if (name) own = plus(own, await centred(name), facts.concepts.in_english);
    own = unit(own);
    if (!unknown || !(name || language === 'en')) return own;
    const classes = rowsOf(data.classes, own.length);
    const nearest = sharesOf(own).reduce((sum, share, i) => plus(sum, classes[i], share), new Float32Array(own.length));
    return unit(plus(own, unit(nearest), unknown));
  };
  const signsOf = (text, language, vector, best) => {
    const reader = language === 'en' || facts.taught.includes(language) ? 'method' : 'others';
    const limits = facts.limits[reader][language] ?? facts.limits[reader].other;
    const limit = limits?.[wordsOf(text).length <= facts.concepts.few ? 'short' : 'long'];
    const isUnknown = limit && unknownWords(text, language).length / Math.max(1, wordsOf(text).length) > limit.most_unknown;
    if (!vector) return isUnknown ? ['query'] : [];
    const others = rowsOf(reader === 'method' ? data.cohort : data.cohort_others, vector.length).map((row) => dot(row, vector));
    const spread = Math.sqrt(mean(others.map((x) => (x - mean(others)) ** 2)) * others.length / (others.length - 1));
    const signs = limit && (best - mean(others)) / spread < limit.fewest_score ? ['no image'] : [];
    if (isUnknown) signs.push(conceptWeight(text, language) > 1 ? 'concepts' : 'query');
    if ((unknownShare(text, language) ?? 0) <= facts.concepts.well_known) return signs;
    const shares = sharesOf(unit(vector.slice(vector.length / 2))).map(Math.sqrt);
    const support = Math.max(...rowsOf(data.shown, shares.length).map((row) => dot(row, shares)));
    return support < facts.concepts.fewest_support ? ['nothing', ...signs] : signs;
  };
  const answerTo = async (text, language) => {
    let [features, matrices] = await read(text, language);
    const concept = ready.has('others') ? await conceptOf(text, language) : null;
    if (concept && facts.taught.includes(language)) features = plus(unit(features), unit((await sentence(text))[1]), facts.share);
    const weight = conceptWeight(text, language);
    const joined = concept ? unit([...unit(features), ...concept.map((x) => weight * x)]) : unit(features);
    const pictures = rowsOf(data.pictures, 2 * features.length);
    const scores = pictures.map((row) => dot(concept ? row : unit(row.subarray(0, features.length)), joined));
    const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
    return { order, scores, matrices, signs: signsOf(text, language, concept && joined, scores[order[0]]) };
  };

  // ---- the page
  place.innerHTML = `<form role="search" class="asking">
      <label for="try-query">Try it: describe a photograph, in any of 95 languages</label>
      <div><input id="try-query" type="search" dir="auto" autocomplete="off" spellcheck="false" aria-describedby="try-size">
        <select aria-label="Language of the query"></select></div>
      <p class="chips"></p><p id="try-size" class="small"></p>
    </form>
    <progress hidden aria-label="Loading"></progress><p role="status" aria-live="polite"></p><ul class="doubts"></ul>
    <ol class="answer"></ol>
    <figure hidden><div class="matrices" role="img" aria-label="Generated matrices"></div><figcaption class="small"></figcaption></figure>`;
  const [form, input, choice, chips, size, bar, status, doubts, list, figure, figures, legend] = ['form', 'input', 'select', '.chips',
    '#try-size', 'progress', '[role=status]', '.doubts', '.answer', 'figure', '.matrices', 'figcaption'].map((at) => place.querySelector(at));
  form.onsubmit = (event) => event.preventDefault(); // until the photographs are there
  const say = (text) => { status.textContent = text; };
  const nameOf = (code) => new Intl.DisplayNames(['en'], { type: 'language' }).of(code);
  const show = (order) => list.replaceChildren(...order.slice(0, SHOWN).map((i) => {
    const image = Object.assign(new Image(), { src: new URL(`pictures/${facts.pictures[i].id}.webp`, home), loading: 'lazy' });
    image.alt = image.title = facts.pictures[i].caption;
    const item = document.createElement('li');
    item.append(image);
    return item;
  }));
  const draw = (matrices, language) => {
    figure.hidden = false;
    const [n, side] = [6, 16];
    figures.hidden = !matrices;
    legend.textContent = matrices ? `The ${side} × ${side} matrix that DASD generates from this caption for each of the ${n} blocks of the `
      + 'text tower, less the mean over the captions of these photographs: blue is more, red is less. Exchange a noun: nothing changes. '
      + 'Exchange an article or a preposition: everything does.'
      : `A query in ${nameOf(language)} passes no generated adapters.`;
    while (figures.children.length < n) figures.append(Object.assign(document.createElement('canvas'), { width: side, height: side }));
    for (const [k, canvas] of matrices ? [...figures.children].entries() : []) {
      const context = canvas.getContext('2d');
      const pixels = context.createImageData(side, side);
      for (let i = 0; i < side * side; i += 1) {
        const value = matrices[k * side * side + i] - data.matrices[k * side * side + i];
        pixels.data.set([...(value > 0 ? [31, 111, 178] : [200, 60, 80]), 255 * Math.min(1, Math.abs(value) / SCALE)], 4 * i);
      }
      context.putImageData(pixels, 0, 0);
    }
  };
  let asked = 0;
  let busy = false;
  const answer = async () => {
    const text = plain(input.value);
    if (!text) return;
    await need('common');
    const language = choice.value || await languageOf(text);
    if (wantsConcepts) await need('others');
    await need(language === 'en' ? 'english' : facts.taught.includes(language) ? 'taught' : 'others');
    const began = performance.now();
    const { order, matrices, signs } = await answerTo(text, language);
    last = language;
    const words = [...new Set(unknownWords(text, language))].join(', ');
    show(order);
    doubts.replaceChildren(...signs.map((sign) => Object.assign(document.createElement('li'), { textContent: facts.said[sign].replace('{words}', words) })));
    draw(matrices, language);
    list.dataset.query = input.value;
    say(`${nameOf(language)}, ${facts.pictures.length} photographs ranked ${ready.has('others') ? 'with concepts ' : ''}`
      + `in ${Math.round(performance.now() - began)} ms; the first ${SHOWN} of them follow. The first: ${facts.pictures[order[0]].caption}`);
  };
  const ask = async () => {  // one query at a time; of those typed meanwhile the last
    asked += 1;
    if (busy) return;
    busy = true;
    for (let n = 0; n !== asked;) {
      n = asked;
      await answer().catch((error) => { bar.hidden = true; say(`This did not load (${error.message}). Type again to try again.`); });
    }
    busy = false;
  };
  const begin = async () => {
    facts = jsonOf(await bytesOf('facts.json'));
    choice.append(new Option('recognise the language', ''));
    choice.append(...['en', ...facts.taught, ...facts.others].map((code) => new Option(nameOf(code), code)));
    for (const [code, text] of EXAMPLES) {
      const chip = Object.assign(document.createElement('button'), { type: 'button', lang: code, dir: 'auto', textContent: text });
      chip.onclick = () => { input.value = text; choice.value = ''; ask(); };
      chips.append(chip);
    }
    const more = Object.assign(document.createElement('button'), { type: 'button', className: 'more' });
    more.textContent = `Rank with concepts as well (${megabytes('others')} MB)`;
    more.onclick = () => { wantsConcepts = true; more.disabled = true; ask(); };
    chips.append(more);
    size.textContent = `Everything runs in this page. The first key loads ${megabytes('common', 'taught')} MB, English ${megabytes('english')} MB `
      + `and the ${facts.others.length} languages that DASD was not taught ${megabytes('others')} MB more.`;
    let timer;
    input.oninput = () => { clearTimeout(timer); timer = setTimeout(ask, PAUSE); };
    choice.onchange = ask;
    form.onsubmit = (event) => { event.preventDefault(); ask(); };
    show(facts.pictures.map((_, i) => i).filter((i) => i % 9 === 0));
    if (input.value) ask();  // typed before this was ready
  };
  if (location.protocol === 'file:') {
    place.textContent = 'Opened through a server, as with python -m http.server -d _docs, this page answers queries.';
  } else begin().catch((error) => { place.textContent = `The field for queries did not load: ${error.message}.`; });
})();
