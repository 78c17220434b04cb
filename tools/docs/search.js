// Search of the site: pages that a person reads come before modules and symbols, unless the query is written like code.
// The generator's script asks window.Fuse for results; ours ranks them, and the library finds misspelt words where we find nothing.
(() => {
  const WORTH = { start: 4, guides: 3, studies: 2.2, explained: 2.2, notebooks: 1, symbols: .8 };
  const NAMES = { start: 'Start', guides: 'Guide', studies: 'Study', explained: 'How it works', notebooks: 'Notebook', symbols: 'API' };
  const FIELDS = { title: 10, section: 7, text: 1.5 };
  const PER_PAGE = 3;  // sections of one page
  const Fuzzy = window.Fuse;

  const singular = w => w.length > 3 ? w.replace(/ies$/, 'y').replace(/([^s])s$/, '$1') : w;
  const parted = text => text.replace(/([a-z\d])([A-Z])/g, '$1 $2').toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const words = text => [...new Set(parted(text).map(singular))];
  const like_code = query => /[._()]|[a-z][A-Z]/.test(query);

  // how well a word fits a field whose words are joined by spaces: a whole word, the start of one, the inside of one
  const fit = (word, joined) => joined.includes(` ${word} `) ? 1 : joined.includes(` ${word}`) ? .7 : word.length > 2 && joined.includes(word) ? .25 : 0;

  class Ranked {
    constructor(index, options) {
      this.fuzzy = Fuzzy && new Fuzzy(index, options);
      this.entries = index.map(item => ({
        item, page: item.href.split('#')[0], symbol: item.kind === 'symbols',
        title: ` ${words(item.title).join(' ')} `, section: ` ${words(item.section).join(' ')} `, text: ` ${words(item.text).join(' ')} `,
        length: { title: words(item.title).length, section: words(item.section).length },
      }));
    }

    score(entry, asked, query, code) {
      let total = 0;
      for (const word of asked) {
        let best = 0;
        for (const field in FIELDS) {
          const found = fit(word, entry[field]);
          if (!found) continue;
          // a word of a short heading says more than one of a long heading; a section's heading does not repeat its page's
          const brief = entry.length[field] ? entry.length[field] ** -.3 : 1;
          const worth = field === 'title' && entry.item.section ? .35 : 1;
          best = Math.max(best, FIELDS[field] * found * brief * worth);
        }
        if (!best) return 0;
        total += best;
      }
      if (code) {
        const name = query.replace(/\(\)$/, '').toLowerCase(), heading = (entry.item.section || entry.item.title).toLowerCase();
        return entry.symbol ? total * (heading === name ? 40 : heading.endsWith('.' + name) ? 20 : 6) : total;
      }
      const whole = entry.item.section ? 1 : 1.3;  // a page comes before a section of it
      const names = (query.match(/\b\p{Lu}{2,}\b/gu) || []).filter(name => ` ${entry.item.title} ${entry.item.section} `.match(`\\b${name}\\b`));
      return total / asked.length * (WORTH[entry.item.kind] || 1) * whole * 1.5 ** names.length;
    }

    search(query, { limit }) {
      const asked = words(query), code = like_code(query), seen = {};
      const found = this.entries.map(entry => [this.score(entry, asked, query, code), entry]).filter(([score]) => score > 0);
      found.sort((a, b) => b[0] - a[0]);
      const hits = found.map(([, entry]) => entry).filter(entry => (seen[entry.page] = (seen[entry.page] || 0) + 1) <= PER_PAGE);
      const items = hits.length ? hits.map(entry => entry.item) : this.fuzzy ? this.fuzzy.search(query, { limit }).map(hit => hit.item) : [];
      return items.slice(0, limit).map(item => ({ item: { ...item, section: [NAMES[item.kind], item.section].filter(Boolean).join(' · ') } }));
    }
  }
  window.Fuse = Ranked;
})();
