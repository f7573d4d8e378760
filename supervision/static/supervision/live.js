/* The control room's one script. Everything works without it; with it, pages refresh themselves without losing what
   is being typed, spoken times stay right, and long lists can be searched. */
'use strict';
(() => {
  const HIDDEN_PACE = 30000, MAX_PACE = 60000;

  // --- spoken times --------------------------------------------------------------------------------------------------

  const STEPS = [[172800, 86400, 'day'], [3600, 3600, 'hour'], [60, 60, 'minute'], [0, 1, 'second']];
  const spoken = new Intl.RelativeTimeFormat(document.documentElement.lang || 'en', {numeric: 'always', style: 'short'});

  function speak() {
    for (const time of document.querySelectorAll('time[data-relative]')) {
      const away = (new Date(time.dateTime) - Date.now()) / 1000;
      const [, unit, name] = STEPS.find(([from]) => Math.abs(away) >= from);
      const words = Math.abs(away) < 5 ? time.textContent : spoken.format(Math.trunc(away / unit), name);
      if (time.textContent !== words) time.textContent = words;
    }
  }

  // --- a page that refreshes itself ------------------------------------------------------------------------------------

  const live = document.getElementById('sv-live');
  let tag = null, wait = null, failures = 0, isOver = false, wanted = new Set();

  /* What the server sent for each region, to compare with: the page itself changes under a person's hands. */
  const sent = new WeakMap();

  function stable(element) {
    const copy = element.cloneNode(true);
    for (const input of copy.querySelectorAll('input[name=csrfmiddlewaretoken]')) input.remove();
    for (const time of copy.querySelectorAll('time')) time.textContent = '';
    for (const details of copy.querySelectorAll('details')) details.removeAttribute('open');
    for (const own of copy.querySelectorAll('[data-made-here]')) own.remove();
    return copy.innerHTML + (copy.dataset.note || '');
  }

  function isBusy(region) {
    if (region.dataset.dirty) return true;
    const focus = document.activeElement;
    return region.contains(focus) && (focus.matches('input, select, textarea') || !focus.id);
  }

  function notice(element, words) {
    let line = element.querySelector(':scope > .sv-notice');
    if (!words) { if (line) line.remove(); return; }
    if (!line) {
      line = document.createElement('p');
      line.className = 'sv-notice';
      line.setAttribute('role', 'status');
      line.dataset.madeHere = '';
      element.prepend(line);
    }
    if (line.textContent !== words) line.textContent = words;
  }

  function replace(old, fresh) {
    const before = sent.get(old), after = stable(fresh);
    if (before === after) return;
    if (isBusy(old)) {
      if (fresh.dataset.note && old.dataset.note !== fresh.dataset.note) notice(old, fresh.dataset.note);
      return;
    }
    for (const details of old.querySelectorAll('details[id]')) {
      const same = fresh.querySelector('#' + CSS.escape(details.id));
      if (same) same.open = details.open;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement.id : '';
    old.replaceWith(fresh);
    adopt(fresh, after);
    if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
  }

  function adopt(region, content) {
    sent.set(region, content === undefined ? stable(region) : content);
    prepare(region);
  }

  /* Brings the regions of `target` to those of `source`, in its order; what somebody is typing in stays. */
  function merge(target, source) {
    let last = null;
    for (const fresh of [...source.children]) {
      const old = fresh.id && [...target.children].find(child => child.id === fresh.id);
      let now = fresh;
      if (!old) {
        last ? last.after(fresh) : target.prepend(fresh);
        for (const region of fresh.matches('[data-region]') ? [fresh] : fresh.querySelectorAll('[data-region]')) adopt(region);
      } else {
        if (old.hasAttribute('data-region-list')) merge(old, fresh);
        else if (old.hasAttribute('data-region')) replace(old, fresh);
        else old.replaceWith(fresh);
        now = document.getElementById(fresh.id);
      }
      last = now;
    }
    for (const child of [...target.children]) {
      if (wanted.has(child.id) || child.hasAttribute('data-made-here')) continue;
      if (!isBusy(child) && !child.querySelector('[data-dirty]')) child.remove();
    }
  }

  async function refresh() {
    const answer = await fetch(live.dataset.url, {headers: tag ? {'If-None-Match': tag} : {}, credentials: 'same-origin', cache: 'no-store'});
    if (answer.redirected || answer.status === 401 || answer.status === 403) { notice(live, live.dataset.out); return; }
    if (answer.status === 304) { notice(live, ''); return; }
    if (!answer.ok) throw new Error(String(answer.status));
    const text = await answer.text();
    const parsed = new DOMParser().parseFromString(text, 'text/html');
    const source = live.hasAttribute('data-whole') ? parsed.getElementById('sv-live') : parsed.body;
    if (!source) return;
    wanted = new Set([...source.querySelectorAll('[id]')].map(element => element.id));
    merge(live, source);
    tag = answer.headers.get('ETag');
    notice(live, '');
    speak();
  }

  async function poll() {
    clearTimeout(wait);
    isOver = isOver || Boolean(document.querySelector('#sv-state[data-final]'));
    if (isOver) return;
    try { await refresh(); failures = 0; } catch { failures += 1; if (failures > 1) notice(live, live.dataset.lost); }
    const pace = document.hidden ? HIDDEN_PACE : Number(live.dataset.pace) || 3000;
    wait = setTimeout(poll, Math.min(pace * 2 ** Math.min(failures, 5), MAX_PACE));
  }

  // --- forms -----------------------------------------------------------------------------------------------------------

  function prepare(root) {
    for (const select of root.querySelectorAll('select[data-supervision-search]')) searchable(select);
    for (const all of root.querySelectorAll('.sv-all')) all.hidden = false;
  }

  /* A box above a long list that leaves only what contains the words. */
  function searchable(select) {
    if (select.dataset.searched) return;
    select.dataset.searched = 'yes';
    const every = [...select.options];
    const box = document.createElement('input');
    box.type = 'search';
    box.className = 'sv-search vTextField';
    box.dataset.madeHere = '';
    box.setAttribute('aria-label', select.dataset.supervisionSearch);
    box.setAttribute('aria-controls', select.id);
    box.placeholder = select.dataset.supervisionSearch;
    select.before(box);
    if (!select.multiple) select.size = Math.min(8, every.length);
    box.addEventListener('input', () => {
      const words = box.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
      const left = every.filter(option => option.selected && option.value !== '' || words.every(word => option.text.toLocaleLowerCase().includes(word)));
      select.replaceChildren(...left);
      const real = left.filter(option => option.value !== '');
      if (!select.multiple && words.length && real.length === 1) real[0].selected = true;
    });
    box.addEventListener('keydown', event => {
      if (event.key === 'ArrowDown') { event.preventDefault(); select.focus(); }
    });
  }

  document.addEventListener('input', event => {
    const region = event.target.closest('[data-region]');
    if (region) region.dataset.dirty = 'yes';
  });
  document.addEventListener('change', event => {
    if (!event.target.matches('[data-tick-all]')) return;
    for (const box of event.target.closest('fieldset').querySelectorAll('input[name=also]')) box.checked = event.target.checked;
  });
  /* A second click on the way sends nothing: the answer to the first is coming. */
  document.addEventListener('submit', event => {
    if (!event.target.closest('.sv-page')) return;
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = 'yes';
  });
  window.addEventListener('pageshow', () => {
    for (const form of document.querySelectorAll('form[data-sent]')) delete form.dataset.sent;
  });

  let isStarted = false;
  function start() {
    if (isStarted) return;
    isStarted = true;
    for (const region of document.querySelectorAll('[data-region]')) sent.set(region, stable(region));
    prepare(document);
    speak();
    setInterval(speak, 1000);
    if (!live) return;
    document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
    wait = setTimeout(poll, Number(live.dataset.pace) || 3000);
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start);
  else start();
})();
