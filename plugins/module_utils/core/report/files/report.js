'use strict';
(() => {
const LIMIT = 24;
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
const one = (id) => document.getElementById(id);
const words = (node) => all('code', node).map((name) => name.textContent).join('\n').toLowerCase();
// A kind of thing that can be filtered: its elements, the words of each, and how many are shown before "show all".
const kind = (name, selector, limit) => ({ name, nodes: all(selector), words: null, limit, full: false });
const clusters = kind('clusters', '#cards > details', LIMIT);
const kinds = [clusters, kind('replicas', 'table:not(.budgets) > tbody > tr', Infinity),
  kind('services', '#services > details', LIMIT), kind('problems', '.wait', Infinity),
  kind('budgets', '.budgets > tbody', Infinity)];
const tiles = all('#tiles > li');
const tileOf = new Map(clusters.nodes.map((card, position) => [card, tiles[position]]));
const box = one('filter');
const message = one('message');

const more = (entry, matching) => {
  if (!entry.button) {
    entry.button = document.createElement('button');
    entry.button.type = 'button';
    entry.button.addEventListener('click', () => { entry.full = true; filter(); });
    entry.nodes[0].parentNode.after(entry.button);
  }
  entry.button.hidden = entry.full || matching <= entry.limit;
  entry.button.textContent = `Show all ${matching.toLocaleString('en')} ${entry.name}`;
};

const apply = (entry, desired) => {
  if (!entry.nodes.length) return '';
  if (desired.length) entry.words = entry.words || new Map(entry.nodes.map((node) => [node, words(node)]));
  let matching = 0;
  for (const node of entry.nodes) {
    const match = desired.every((word) => entry.words.get(node).includes(word));
    matching += match;
    node.hidden = !match || (!entry.full && matching > entry.limit);
    if (tileOf.get(node)) tileOf.get(node).hidden = !match;
  }
  if (entry.limit < entry.nodes.length) more(entry, matching);
  return `${matching} of ${entry.nodes.length} ${entry.name}`;
};

const filter = () => {
  const desired = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = kinds.map((entry) => apply(entry, desired)).filter(Boolean);
  const found = counts.length ? `Found: ${counts.join(', ')}` : 'There is nothing to filter.';
  message.textContent = desired.length ? found : '';
};

const number = (key) => (left, right) => right.dataset[key] - left.dataset[key];
const orders = {
  name: () => 0,
  fill: number('fill'),
  free: number('free'),
  region: (left, right) => Number(left.dataset.region > right.dataset.region)
    - Number(left.dataset.region < right.dataset.region),
};
const given = clusters.nodes.slice();
const sort = (order) => {
  clusters.nodes = given.slice().sort(orders[order]);
  for (const card of clusters.nodes) {
    card.parentNode.append(card);
    const tile = tileOf.get(card);
    if (tile) tile.parentNode.append(tile);
  }
  filter();
};

// Whatever a link points to is shown, also when it is folded or filtered out.
const reveal = () => {
  const target = location.hash.length > 1 && one(location.hash.slice(1));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) {
    node.hidden = false;
    if (node.tagName === 'DETAILS') node.open = true;
  }
  target.scrollIntoView();
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
};

const shown = () => all('main details').filter((node) => node.offsetParent !== null);
let waiting = 0;
box.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
one('sort').addEventListener('change', (event) => sort(event.target.value));
one('open').addEventListener('click', () => shown().forEach((node) => { node.open = true; }));
one('close').addEventListener('click', () => shown().forEach((node) => { node.open = false; }));
document.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) reveal();
});
addEventListener('hashchange', reveal);
one('tools').hidden = false;
filter();
reveal();
})();
