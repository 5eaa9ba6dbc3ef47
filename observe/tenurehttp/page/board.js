// The board of Tenure: draws what the stream "events" says. It changes nothing.
"use strict";

// Colours that people with any colour vision tell apart (Okabe and Ito), in some patterns. Each member has letters as well.
const colours = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c"];
const patterns = ["plain", "stripes", "dots", "bars", "cross", "lines"];
const tablePage = 100; // rows
const logLength = 100; // entries
const goneFor = 20000; // ms, that a member which has gone stays in the list
const maxGroups = 12; // entries for the moves of one update
const glow = 2500; // ms, that a shard which moved is marked

const byId = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

let last = null; // update
let heardAt = 0; // performance.now() of it
let order = []; // shards by name
// name -> {name, owner, token, aside, until, load, moved, at, drawn}: load is undefined if it is not known; owner is a session, "" is nobody;
// aside is why the shard is not meant to have an owner, until when, 0 for ever; moved is when; at is
// the index in order; drawn is how strongly each picture last marked it.
let shards = new Map();
let owners = new Map(); // number in the stream -> session
let members = new Map(); // session -> member that lives
let beats = new Map(); // session -> ms since its last heartbeat, at heardAt
let places = new Map(); // shard -> [x, y, name]
const nodes = new Map(); // session -> node, of every member ever seen here
const gone = new Map(); // session -> {node, at}
const slots = new Map(); // session -> number of its colour and letter
let counts = new Map(); // session -> shards
let selected = -1; // index in order
let memberLoads = new Map(); // session -> {load, capacity}; empty while no load is known
let ranges = []; // of the keyspace in the order of hashes; neighbours may be combined
let range = -1; // selected, index in ranges
let elsewhere = new Map(); // shard -> the zone that it prefers, and is not in
let effects = null; // {in_doubt, unresolved, oldest, shards, more} that wait; null if they are not shown
let firstRow = 0; // of the table
let hottest = 0; // the most load of a shard

function el(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

const count = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");
const seconds = (ms) => (ms / 1000).toFixed(ms < 10000 ? 1 : 0) + " s";
const load = (x) => x === undefined ? "" : x.toLocaleString("en", { maximumSignificantDigits: 3, notation: x < 1e9 ? "standard" : "scientific" });
const percent = (x) => x > 0 && x < 1e-5 ? "less than 0.001 %" : (100 * x).toLocaleString("en", { maximumSignificantDigits: 3 }) + " %";
const reserved = (name) => name.startsWith("_");
const served = (s) => { const m = members.get(s.owner); return m !== undefined && !m.silent; };
const nodeOf = (session) => nodes.get(session) || "a former member";

const collator = new Intl.Collator("en", { numeric: true });
const natural = (a, b) => collator.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0); // a-2 before a-10
const byNode = (a, b) => natural(nodeOf(a), nodeOf(b)) || natural(a, b);

// shardsOf counts those that people know, without Tenure's own unless there are no others.
function shardsOf(names) {
  const known = names.filter((name) => !reserved(name)).length;
  return known ? count(known, "shard") : count(names.length, "shard") + " of Tenure's own";
}

// some lists at most n.
const some = (list, n) => list.slice(0, n).join(", ") + (list.length > n ? " and " + (list.length - n) + " more" : "");

// sentence has the names of nodes instead of their sessions.
const sentence = (text) => text.replace(/\b[0-9a-f]{32}\b/g, (id) => nodes.get(id) || id);

const heat = (x) => hottest > 0 && x !== undefined ? 0.4 + 0.6 * Math.sqrt(Math.min(1, x / hottest)) : 1; // how strongly it is drawn

const codes = 26 * 26; // of two letters
const letters = (slot) => String.fromCharCode(65 + Math.floor(slot / 26), 65 + slot % 26);

// slotOf gives a session its number, by a hash of its node's label, so that each board shows the same. Of members with the
// same number one has the next.
function slotOf(session) {
  if (slots.has(session)) return slots.get(session);
  const taken = new Set([...members.keys()].map((s) => slots.get(s)));
  let n = 0x811c9dc5;
  for (const c of nodes.get(session) || session) n = Math.imul(n ^ c.codePointAt(0), 0x01000193);
  n = ((n ^ n >>> 15) >>> 0) % codes;
  for (let i = 0; i < codes && taken.has(n); i++) n = (n + 1) % codes;
  slots.set(session, n);
  return n;
}

// --- What the stream says. ---------------------------------------------------

function take(u) {
  const began = u.full ? null : members;
  const left = [];
  const told = ownMoves(u); // sorted by time before they are shown
  if (u.full) {
    shards = new Map(); owners = new Map(); order = []; members = new Map(); firstRow = 0; selected = -1;
    places = new Map(Object.entries(u.places || {}));
    memberLoads = new Map(); ranges = []; range = -1; elsewhere = new Map(); effects = null;
    byId("log").replaceChildren();
    byId("map-box").hidden = places.size === 0;
  }
  for (const [n, session] of u.owners || []) owners.set(n, session);
  if (u.members) {
    const now = new Map(u.members.map((m) => [m.session, m]));
    for (const m of u.members) { nodes.set(m.session, m.node); gone.delete(m.session); }
    for (const [session, m] of began || []) {
      if (!now.has(session)) { gone.set(session, { node: m.node, at: Date.now() }); left.push(session); }
    }
    members = now;
    for (const session of [...now.keys()].sort(byNode)) {
      slotOf(session);
      if (began && !began.has(session)) told.push([u.at, nodeOf(session) + " joined", "", [], false]);
    }
    grid.all = map.all = true;
  }
  for (const session of left) {
    const n = counts.get(session) || 0;
    told.push([u.at, nodeOf(session) + " is gone", n ? "it had " + count(n, "shard") : "", [], n > 0]);
  }
  for (const n of u.notes || []) {
    const shown = n.kind === "member" && !u.full && / (joined|gone)$/.test(n.text); // the list of members has it
    if (!shown) told.push([Date.parse(n.at), n.shard ? n.shard + ": " + n.text : n.text, "", [], n.kind === "refused"]);
  }
  for (const n of told.sort((a, b) => a[0] - b[0])) note(...n);
  rows(u);
  if (u.member_loads) memberLoads = new Map(Object.entries(u.member_loads));
  if (u.ranges) ranges = u.ranges;
  if (u.effects) effects = u.effects;
  if (u.elsewhere) elsewhere = new Map(Object.entries(u.elsewhere));
  for (const [name, load] of Object.entries(u.loads || {})) {
    const s = shards.get(name);
    if (s) s.load = load === null ? undefined : load;
  }
  last = u;
  heardAt = performance.now();
  beats = new Map(Object.entries(u.beats));
  counts = new Map();
  hottest = 0;
  for (const s of order) {
    if (!reserved(s.name)) counts.set(s.owner, (counts.get(s.owner) || 0) + 1);
    hottest = Math.max(hottest, s.load || 0);
  }
  if (u.loads) grid.all = true;
  show();
}

// ownMoves are notes of what happened to leases of the member that serves this page. A
// grant shows as a change of owner, so it is noted only where that came before the page.
// Moves that are alike and follow each other within a second are one note.
function ownMoves(u) {
  const groups = [];
  for (const m of u.moves || []) {
    if (m.kind === "granted" && !u.full) continue;
    const at = Date.parse(m.at), why = m.reason || "";
    let g = groups.at(-1);
    if (!g || g.kind !== m.kind || g.why !== why || at - g.at >= 1000) groups.push(g = { at, kind: m.kind, why, names: [] });
    g.names.push(m.shard);
  }
  return groups.map((g) => [g.at, count(g.names.length, "lease") + " of " + u.node + " " + g.kind, g.why, g.names,
    g.kind === "stuck" || g.kind === "revoked"]);
}

function rows(u) {
  const groups = new Map();
  const held = [], freed = []; // into quarantine, and out of it
  let another = false;
  const now = performance.now();
  for (const [name, n, token, aside = "", until = 0] of u.shards || []) {
    const owner = n === 0 ? "" : owners.get(n);
    const s = shards.get(name);
    if (aside && until && !(s && s.until)) held.push([name, aside]);
    if (!s) {
      shards.set(name, { name, owner, token, aside, until, moved: 0, at: -1, drawn: new Map() });
      another = true;
      continue;
    }
    const same = s.owner === owner && s.token === token;
    if (s.until && !aside) freed.push(name);
    s.aside = aside; s.until = until;
    if (same) { s.moved = now; grid.touch(s); map.touch(s); continue; }
    const key = s.owner + "\n" + owner;
    if (!groups.has(key)) groups.set(key, { from: s.owner, to: owner, names: [] });
    groups.get(key).names.push(name);
    s.owner = owner; s.token = token; s.moved = now;
    grid.touch(s); map.touch(s);
  }
  for (const name of u.removed || []) { shards.delete(name); another = true; }
  if (another) {
    const name = selected < 0 ? "" : order[selected].name;
    order = [...shards.values()].sort((a, b) => natural(a.name, b.name));
    order.forEach((s, i) => { s.at = i; });
    selected = name && shards.has(name) ? shards.get(name).at : -1;
    grid.fit = map.all = true;
  }
  if (groups.size <= maxGroups) {
    for (const g of groups.values()) note(u.at, ...moved(g));
  } else {
    const names = [...groups.values()].flatMap((g) => g.names), to = new Map();
    for (const g of groups.values()) to.set(g.to, (to.get(g.to) || []).concat(g.names));
    const where = [...to.keys()].sort(byNode).map((s) => (s ? nodeOf(s) : "nobody") + " (" + to.get(s).length.toLocaleString("en") + ")");
    note(u.at, shardsOf(names) + " moved", "to " + some(where, maxGroups), names);
  }
  quarantined(u.at, held, freed);
}

// quarantined notes shards that went into quarantine, or came out of it.
function quarantined(at, held, freed) {
  if (held.length) note(at, count(held.length, "shard") + " in quarantine", held[0][1], held.map((h) => h[0]), true);
  if (freed.length) note(at, count(freed.length, "shard") + " out of quarantine", "", freed);
}

// moved says what a change of owner was, and why.
function moved(g) {
  const n = shardsOf(g.names);
  const from = nodeOf(g.from), to = nodeOf(g.to);
  const former = members.get(g.from);
  if (g.from === g.to) return [n + " of " + to + " under a new token", "the same owner was granted it again", g.names];
  if (g.to === "") return [n + " given back by " + from, "", g.names];
  if (g.from === "") return [n + " granted to " + to, "nobody had it", g.names];
  const text = n + ": " + from + " → " + to;
  if (!former) return [text, "taken over: " + from + " is gone", g.names];
  if (former.silent) return [text, "taken over: " + from + " is silent", g.names];
  if (former.ineligible) return [text, "handed over: " + from + " is not eligible: " + former.ineligible, g.names];
  if (former.draining) return [text, "handed over: " + from + " drains", g.names];
  return [text, "handed over", g.names];
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// note adds an entry to the list of what happened, newest first.
function note(at, text, why, names, bad) {
  const li = el("li", bad ? "bad" : "");
  const time = el("time", "", clock.format(at));
  time.dateTime = new Date(at).toISOString();
  li.append(time, el("p", "", sentence(text)));
  if (why) li.append(el("p", "why", sentence(why)));
  if (names.length) li.append(el("p", "names", some(names.sort(natural), 6)));
  const log = byId("log");
  log.prepend(li);
  while (log.children.length > logLength) log.lastChild.remove();
}

// --- Figures, members, table. ------------------------------------------------

function number(id, value, unit) {
  const dd = byId(id);
  const text = value + (unit ? " " + unit : "");
  if (dd.textContent === text) return;
  dd.replaceChildren(value);
  if (unit) dd.append(" ", el("small", "", unit));
}

function show() {
  const u = last;
  byId("seen-by").textContent = "as " + u.node + " sees it" + (u.leaving ? ", which is leaving" : "");
  byId("halted").hidden = !u.halted;
  byId("halted").textContent = u.halted ? "Halted, nothing is granted: " + u.halted : "";
  number("n-shards", u.known.toLocaleString("en"));
  byId("heat-help").hidden = hottest === 0;
  number("n-unowned", u.unowned.toLocaleString("en"));
  byId("tile-unowned").className = u.unowned ? "bad" : "";
  byId("tile-quarantined").hidden = !u.quarantined;
  number("n-quarantined", u.quarantined.toLocaleString("en"));
  number("n-members", String(members.size));
  byId("tile-trust").hidden = !u.session;
  byId("tile-refused").hidden = u.refused === undefined;
  if (u.refused !== undefined) number("n-refused", u.refused.toLocaleString("en"));
  byId("tile-lag").hidden = !u.lag;
  if (u.lag) {
    const far = u.lag.seconds > 1e6;
    number("n-lag", u.lag.entries.toLocaleString("en"), far ? "entries" : "in " + u.lag.seconds.toFixed(1) + " s");
  }
  byId("left-out").hidden = order.length >= u.total;
  byId("left-out").textContent = "The first " + order.length.toLocaleString("en") + " of " + count(u.total, "shard") + " are shown.";
  document.title = (u.unowned ? u.unowned + " without an owner · " : "") + (u.quarantined ? u.quarantined + " in quarantine · " : "") + "Tenure · " + u.node;
  showMembers();
  showRanges();
  showEffects();
  showTable();
  showCell();
}

function memberItem(session) {
  const li = el("li");
  const head = el("div", "name");
  const beat = el("div", "beat");
  const track = el("div", "track");
  track.append(el("div", "fill"));
  beat.append(track, el("span"));
  li.append(document.createElement("canvas"), head, el("div", "count"), beat, el("div", "load"));
  li.dataset.session = session;
  head.append(nodeOf(session), " ", el("span", "tag"));
  return li;
}

const swatch = 28; // CSS pixels

function showMembers() {
  for (const [s, g] of gone) if (Date.now() - g.at > goneFor && !counts.get(s)) gone.delete(s);
  const list = byId("members");
  const all = [...members.keys(), ...gone.keys()].sort((a, b) => (b === last.session) - (a === last.session) || byNode(a, b));
  if ([...list.children].map((li) => li.dataset.session).join() !== all.join()) {
    const have = new Map([...list.children].map((li) => [li.dataset.session, li]));
    list.replaceChildren(...all.map((s) => have.get(s) || memberItem(s)));
    for (const li of list.children) paintSwatch(li);
  }
  let total = 0;
  for (const x of memberLoads.values()) total += x.load;
  for (const li of list.children) {
    const session = li.dataset.session;
    const m = members.get(session);
    const tags = [];
    if (!m) tags.push("gone");
    else {
      if (session === last.session) tags.push("this member");
      if (m.draining) tags.push("draining");
      if (m.ineligible) tags.push("not eligible: " + m.ineligible);
      if (m.trouble) tags.push(m.trouble);
      if (m.silent) tags.push("silent");
    }
    li.dataset.node = nodeOf(session);
    li.querySelector(".tag").textContent = tags.join(", ");
    showLoad(li.querySelector(".load"), memberLoads.get(session), total);
    li.querySelector(".count").textContent = (counts.get(session) || 0).toLocaleString("en");
  }
  showBeats();
}

// showLoad shows a member's load, as a part of its capacity, or of all load.
function showLoad(div, m, all) {
  div.hidden = m === undefined;
  if (!m) return;
  div.textContent = "load " + load(m.load) + (m.capacity ? ", " + percent(m.load / m.capacity) + " of its capacity " + load(m.capacity) :
    all > 0 ? ", " + percent(m.load / all) + " of all" : "");
  div.classList.toggle("over", m.capacity > 0 && m.load > m.capacity);
}

// showEffects shows how many effects of this process wait, by shard.
function showEffects() {
  byId("tile-effects").hidden = effects === null;
  byId("tile-unresolved").hidden = !(effects && effects.unresolved);
  byId("effects-box").hidden = !(effects && effects.shards.length);
  if (!effects) return;
  number("n-effects", (effects.in_doubt + effects.unresolved).toLocaleString("en"));
  number("n-unresolved", effects.unresolved.toLocaleString("en"));
  const texts = effects.shards.map((s) => s.shard + ": " + count(s.in_doubt + s.unresolved, "effect") + " in doubt" +
    (s.unresolved ? ", " + s.unresolved.toLocaleString("en") + " for a person to decide" : ""));
  const list = byId("effects");
  while (list.children.length > texts.length) list.lastChild.remove();
  while (list.children.length < texts.length) list.append(el("li"));
  texts.forEach((text, i) => {
    const li = list.children[i];
    if (li.textContent !== text) li.textContent = text;
    li.className = effects.shards[i].unresolved ? "bad" : "";
  });
  byId("effects-help").textContent = (effects.more ? "More shards have some. " : "") +
    (effects.oldest ? "The oldest began " + new Date(effects.oldest).toLocaleString("en-GB") + "." : "");
}

// showRanges shows the keyspace as a bar.
function showRanges() {
  const bar = byId("ranges");
  byId("ranges-box").hidden = ranges.length === 0;
  bar.classList.toggle("few", ranges.length <= 64);
  while (bar.children.length > ranges.length) bar.lastChild.remove();
  while (bar.children.length < ranges.length) bar.append(el("span"));
  ranges.forEach((r, i) => {
    const e = bar.children[i], text = rangeText(r), slot = String(rangeSlot(r));
    e.style.flexGrow = 1000 * r.part;
    e.style.opacity = heat(r.load === undefined ? undefined : r.load / r.shards);
    if (e.title !== text) e.title = text;
    if (e.dataset.slot !== slot) { e.dataset.slot = slot; e.style.backgroundImage = "url(" + sprite(Number(slot), tile, false).toDataURL() + ")"; }
  });
  showRange();
}

const tile = 9; // pixels of a range's pattern, without letters

// rangeSlot is the slot to draw a range with: its shard's, or, of combined ones, that of the member that owns most of them.
function rangeSlot(r) {
  const s = r.shards === 1 && shards.get(r.shard);
  return s ? slotToDraw(s) : served({ owner: r.session }) ? slotOf(r.session) : -1;
}

function rangeText(r) {
  const s = r.shards === 1 && shards.get(r.shard);
  const most = s ? ownerText(s) : r.session ? nodeOf(r.session) : "nobody";
  return (r.shards > 1 ? count(r.shards, "range") + " from " + r.shard : r.shard) + ": " + r.range[0] + " to " + r.range[1] + ", " +
    percent(r.part) + " of the keyspace, " + (r.owners > 1 ? count(r.owners, "owner") + ", most is of " + most : most) +
    (r.load === undefined ? "" : ", load " + load(r.load));
}

function showRange() {
  range = Math.min(range, ranges.length - 1);
  const text = range < 0 ? "" : rangeText(ranges[range]);
  if (byId("range").textContent !== text) byId("range").textContent = text;
  [...byId("ranges").children].forEach((e, i) => e.classList.toggle("on", i === range));
}

function paintSwatch(li) {
  const c = li.querySelector("canvas");
  const r = devicePixelRatio || 1;
  c.width = c.height = swatch * r;
  c.getContext("2d").drawImage(sprite(slotOf(li.dataset.session), Math.round(swatch * r), true), 0, 0);
}

// showBeats draws, for each member, how much of its TTL is left since its last heartbeat.
function showBeats() {
  if (!last) return;
  const passed = performance.now() - heardAt;
  for (const li of byId("members").children) {
    const session = li.dataset.session;
    const m = members.get(session);
    const fill = li.querySelector(".fill"), text = li.querySelector(".beat span");
    let part = -1, say = m ? "heartbeats are not watched from here" : "no session";
    if (m && session === last.session && last.trust > 0) {
      const rest = Math.max(0, last.trust - passed);
      part = rest / m.ttl_ms; say = "trust " + seconds(rest);
    } else if (m && beats.has(session)) {
      const age = beats.get(session) + passed;
      part = 1 - age / m.ttl_ms; say = "heard " + seconds(age) + " ago";
    }
    fill.style.width = 100 * Math.max(0, Math.min(1, part)) + "%";
    text.textContent = say;
    li.className = !m ? "gone unknown" : part < 0 && !beats.has(session) ? "unknown" : m.silent || part < 0.25 ? "late" : "";
  }
  number("n-trust", last.trust > 0 ? seconds(Math.max(0, last.trust - passed)) : "none");
}

function matching() {
  const text = byId("find").value.trim();
  return text ? order.filter((s) => s.name.includes(text)) : order;
}

function ownerText(s) {
  if (s.aside && !served(s)) return "nobody: " + s.aside;
  if (s.owner === "") return "nobody";
  const m = members.get(s.owner);
  return nodeOf(s.owner) + " (" + letters(slotOf(s.owner)) + ")" + (m ? (m.silent ? ", silent" : "") : ", gone") +
    (elsewhere.has(s.name) ? ", not in the zone that it prefers, " + elsewhere.get(s.name) : "");
}

function showTable() {
  if (!byId("table-box").open) return;
  const list = matching();
  firstRow = Math.max(0, Math.min(firstRow, Math.floor((list.length - 1) / tablePage) * tablePage));
  const some = list.slice(firstRow, firstRow + tablePage);
  const body = byId("rows");
  while (body.children.length > some.length) body.lastChild.remove();
  while (body.children.length < some.length) {
    const tr = el("tr");
    tr.append(el("td"), el("td"), el("td"));
    body.append(tr);
  }
  const loaded = memberLoads.size > 0;
  byId("load-head").hidden = !loaded;
  some.forEach((s, i) => {
    const tr = body.children[i];
    if (loaded !== tr.children.length > 3) { if (loaded) tr.append(el("td")); else tr.lastChild.remove(); }
    const owner = tr.children[1];
    const texts = [s.name, ownerText(s), String(s.token), load(s.load)];
    [...tr.children].forEach((td, k) => { if (td.textContent !== texts[k]) td.textContent = texts[k]; });
    owner.className = served(s) || reserved(s.name) || s.aside && !s.until ? "" : "none";
  });
  byId("page").textContent = list.length ? (firstRow + 1) + " to " + (firstRow + some.length) + " of " + list.length.toLocaleString("en") : "none";
  byId("before").disabled = firstRow === 0;
  byId("after").disabled = firstRow + tablePage >= list.length;
}

function showCell() {
  const s = order[selected];
  const place = s && places.get(s.name);
  const text = s ? s.name + (place && place[2] ? " (" + place[2] + ")" : "") + ": " + ownerText(s) + ", token " + s.token +
    (s.load === undefined ? "" : ", load " + load(s.load)) : "";
  if (byId("cell").textContent !== text) byId("cell").textContent = text;
}

// --- Drawing. ----------------------------------------------------------------

const sprites = new Map();

// sprite is a cell, or as round a place of the map: colour, pattern and, where there is
// room, the letters of a member. Slot -1 is a shard that nobody serves, -2 one that nobody
// needs to serve: Tenure's own, or one that has ended. -3 is one in quarantine.
function sprite(slot, size, round) {
  const key = slot + "/" + size + "/" + round;
  if (sprites.has(key)) return sprites.get(key);
  const c = document.createElement("canvas");
  c.width = c.height = size;
  const g = c.getContext("2d");
  const css = getComputedStyle(document.documentElement);
  const r = size / 2;
  g.beginPath();
  if (round) g.arc(r, r, r - 0.5, 0, 2 * Math.PI);
  else if (size >= 10) g.roundRect(0, 0, size, size, Math.max(2, size / 7));
  else g.rect(0, 0, size, size);
  g.save();
  g.clip();
  if (slot < 0) {
    g.fillStyle = css.getPropertyValue("--cell");
    g.fill();
    if (slot === -1) {
      g.strokeStyle = css.getPropertyValue("--bad");
      g.lineWidth = Math.max(1, size / 8);
      g.beginPath();
      g.moveTo(size * 0.25, size * 0.25); g.lineTo(size * 0.75, size * 0.75);
      g.moveTo(size * 0.75, size * 0.25); g.lineTo(size * 0.25, size * 0.75);
      g.stroke();
      if (round) { g.beginPath(); g.arc(r, r, r - 1, 0, 2 * Math.PI); g.stroke(); }
      else g.strokeRect(0, 0, size, size);
    }
    if (slot === -3) { // a bar, as on a sign of no entry
      g.fillStyle = css.getPropertyValue("--bad");
      g.fill();
      g.fillStyle = css.getPropertyValue("--cell");
      g.fillRect(size * 0.2, size * 0.4, size * 0.6, Math.max(1, size * 0.2));
    }
  } else {
    const colour = colours[slot % colours.length];
    const light = slot % colours.length !== 0 && slot % colours.length !== 5 && slot % colours.length !== 2;
    g.fillStyle = colour;
    g.fill();
    pattern(g, size, patterns[(slot + Math.floor(slot / colours.length)) % patterns.length], light);
    if (size >= 15 * (devicePixelRatio || 1)) {
      const text = letters(slot);
      g.font = "600 " + Math.round(size * 0.46) + "px system-ui, sans-serif";
      g.textAlign = "center";
      g.textBaseline = "alphabetic";
      const box = g.measureText(text);
      const y = r + (box.actualBoundingBoxAscent - box.actualBoundingBoxDescent) / 2;
      g.lineWidth = Math.max(2, size / 9);
      g.lineJoin = "round";
      g.strokeStyle = colour;
      g.strokeText(text, r, y);
      g.fillStyle = light ? "#10181d" : "#ffffff";
      g.fillText(text, r, y);
    }
  }
  g.restore();
  if (sprites.size > 2000) sprites.clear();
  sprites.set(key, c);
  return c;
}

function pattern(g, size, name, light) {
  g.strokeStyle = g.fillStyle = light ? "rgb(0 0 0 / 0.22)" : "rgb(255 255 255 / 0.34)";
  const step = Math.max(3, size / 4);
  g.lineWidth = Math.max(1, step / 3);
  g.beginPath();
  for (let i = -size; i < 2 * size; i += step) {
    if (name === "stripes" || name === "cross") { g.moveTo(i, 0); g.lineTo(i + size, size); }
    if (name === "cross") { g.moveTo(i + size, 0); g.lineTo(i, size); }
    if (name === "bars") { g.moveTo(i + step / 2, 0); g.lineTo(i + step / 2, size); }
    if (name === "lines") { g.moveTo(0, i + step / 2); g.lineTo(size, i + step / 2); }
    if (name === "dots") {
      for (let k = step / 2; k < size; k += step) g.rect(i + step / 3, k - step / 6, step / 2.5, step / 2.5);
    }
  }
  if (name === "dots") g.fill();
  else if (name !== "plain") g.stroke();
}

const slotToDraw = (s) => served(s) ? slotOf(s.owner) : s.until ? -3 : reserved(s.name) || s.aside ? -2 : -1;

// A picture draws shards on a canvas: those that changed, or all.
class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.g = canvas.getContext("2d");
    this.changed = new Set();
    this.fit = true; // to be measured again
    this.all = true; // to be drawn again
    this.width = 0;
  }

  touch(s) { this.changed.add(s); s.drawn.delete(this); }

  draw(now) {
    if (this.fit) this.measure();
    if (this.all) {
      this.g.clearRect(0, 0, this.canvas.width, this.canvas.height);
      this.background();
      for (const s of order) this.paint(s, now);
      this.paintSelected();
      this.changed = new Set(order.filter((s) => s.moved));
    } else if (this.changed.size) {
      const due = [];
      for (const s of this.changed) {
        const a = this.strength(s, now);
        if (s.drawn.get(this) !== a) due.push(s);
        if (a === 0) this.changed.delete(s);
      }
      if (due.length) this.repaint(due, now);
    }
    this.fit = this.all = false;
  }

  background() {}

  // size sets the canvas' size in CSS pixels.
  size(width, height) {
    this.ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.canvas.style.height = height + "px";
    this.width = width;
    this.all = true;
  }

  // strength of the mark of a shard that moved lately, 0 to 1.
  strength(s, now) {
    const age = now - s.moved;
    if (!s.moved || age > glow) return 0;
    return calm.matches ? 1 : Math.ceil(4 * (1 - age / glow)) / 4; // in few steps: each is a drawing
  }
}

class Grid extends Picture {
  measure() {
    const width = this.canvas.parentElement.clientWidth - 36;
    const most = Math.max(280, innerHeight * (width < 500 ? 0.75 : 0.62));
    const visible = Math.max(1, order.length);
    let cell = 4;
    for (const size of [30, 27, 24, 21, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5]) {
      if (Math.ceil(visible / Math.max(1, Math.floor(width / size))) * size <= most) { cell = size; break; }
    }
    this.columns = Math.max(1, Math.floor(width / cell));
    this.cell = cell;
    this.size(Math.max(width, cell), Math.ceil(visible / this.columns) * cell);
    this.canvas.style.width = Math.max(width, cell) + "px";
    this.step = cell * this.ratio;
    this.side = Math.max(1, Math.round(this.step - (cell >= 8 ? 2 : 1) * this.ratio));
  }

  x(i) { return Math.round(i % this.columns * this.step); }
  y(i) { return Math.round(Math.floor(i / this.columns) * this.step); }

  paint(s, now) {
    const x = this.x(s.at), y = this.y(s.at);
    this.g.globalAlpha = served(s) ? heat(s.load) : 1;
    this.g.drawImage(sprite(slotToDraw(s), this.side, false), x, y);
    this.g.globalAlpha = 1;
    const a = this.strength(s, now);
    s.drawn.set(this, a);
    if (a > 0) {
      const w = Math.max(1, this.side / 7);
      this.g.globalAlpha = a;
      this.g.strokeStyle = dark.matches ? "#ffffff" : "#000000";
      this.g.lineWidth = w;
      this.g.strokeRect(x + w / 2, y + w / 2, this.side - w, this.side - w);
      this.g.globalAlpha = 1;
    }
  }

  repaint(list, now) {
    for (const s of list) {
      if (s.at < 0 || shards.get(s.name) !== s) continue;
      this.g.clearRect(this.x(s.at), this.y(s.at), this.side, this.side);
      this.paint(s, now);
    }
    this.paintSelected();
  }

  paintSelected() {
    if (selected < 0 || selected >= order.length) return;
    const w = 2 * this.ratio;
    this.g.strokeStyle = dark.matches ? "#ffffff" : "#000000";
    this.g.lineWidth = w;
    this.g.strokeRect(this.x(selected) + w / 2, this.y(selected) + w / 2, this.side - w, this.side - w);
  }

  find(x, y) {
    const column = Math.floor(x / this.cell), i = Math.floor(y / this.cell) * this.columns + column;
    return column < this.columns && i < order.length ? i : -1;
  }
}

class Map2D extends Picture {
  measure() {
    const width = Math.max(100, this.canvas.parentElement.clientWidth - 36);
    this.radius = Math.max(4, Math.min(8, width / 95));
    this.size(width, Math.round(width * 0.6));
    this.canvas.style.width = width + "px";
  }

  at(s) {
    const p = places.get(s.name);
    const margin = this.radius + 3;
    return p && [margin + p[0] * (this.width - 2 * margin), margin + p[1] * (this.width * 0.6 - 2 * margin)];
  }

  paint(s, now) {
    const p = this.at(s);
    const a = this.strength(s, now);
    s.drawn.set(this, a);
    if (!p) return;
    const side = Math.round(2 * this.radius * this.ratio);
    if (a > 0) {
      this.g.globalAlpha = a;
      this.g.strokeStyle = dark.matches ? "#ffffff" : "#000000";
      this.g.lineWidth = 1.5 * this.ratio;
      this.g.beginPath();
      this.g.arc(p[0] * this.ratio, p[1] * this.ratio, side / 2 + 1.5 * this.ratio, 0, 2 * Math.PI);
      this.g.stroke();
      this.g.globalAlpha = 1;
    }
    this.g.drawImage(sprite(slotToDraw(s), side, true), Math.round(p[0] * this.ratio - side / 2), Math.round(p[1] * this.ratio - side / 2));
  }

  // Places overlap, so that all are drawn again; there are few.
  repaint(list, now) {
    this.g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const s of order) this.paint(s, now);
    this.paintSelected();
  }

  paintSelected() {
    const p = order[selected] && this.at(order[selected]);
    if (!p) return;
    this.g.strokeStyle = dark.matches ? "#ffffff" : "#000000";
    this.g.lineWidth = 2 * this.ratio;
    this.g.beginPath();
    this.g.arc(p[0] * this.ratio, p[1] * this.ratio, (this.radius + 2) * this.ratio, 0, 2 * Math.PI);
    this.g.stroke();
  }

  find(x, y) {
    let best = -1, least = (this.radius + 6) ** 2;
    for (const s of order) {
      const p = this.at(s);
      if (p && (p[0] - x) ** 2 + (p[1] - y) ** 2 < least) { least = (p[0] - x) ** 2 + (p[1] - y) ** 2; best = s.at; }
    }
    return best;
  }
}

const grid = new Grid(byId("grid"));
const map = new Map2D(byId("map"));

function frame(now) {
  if (last) {
    grid.draw(now);
    if (places.size) map.draw(now);
  }
  requestAnimationFrame(frame);
}

function select(i) {
  if (i === selected) return;
  selected = i;
  grid.all = map.all = true;
  showCell();
}

// --- Keyboard, pointer, size. ------------------------------------------------

byId("grid").addEventListener("keydown", (e) => {
  const steps = {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns, PageUp: -10 * grid.columns,
    PageDown: 10 * grid.columns, Home: -Infinity, End: Infinity,
  };
  if (!(e.key in steps) || !order.length || e.ctrlKey || e.altKey || e.metaKey) return;
  e.preventDefault();
  select(selected < 0 ? 0 : Math.max(0, Math.min(order.length - 1, selected + steps[e.key])));
});
byId("grid").addEventListener("focus", () => { if (selected < 0 && order.length) select(0); });
byId("ranges").addEventListener("keydown", (e) => {
  const to = { ArrowLeft: Math.max(0, range - 1), ArrowRight: Math.min(ranges.length - 1, range + 1), Home: 0, End: ranges.length - 1 }[e.key];
  if (to === undefined || e.ctrlKey || e.altKey || e.metaKey) return;
  e.preventDefault();
  range = to;
  showRange();
});
for (const kind of ["pointerover", "pointerdown"]) {
  byId("ranges").addEventListener(kind, (e) => {
    const i = [...byId("ranges").children].indexOf(e.target);
    if (i >= 0) { range = i; showRange(); }
  });
}
for (const picture of [grid, map]) {
  for (const kind of ["pointermove", "pointerdown"]) {
    picture.canvas.addEventListener(kind, (e) => {
      const i = picture.find(e.offsetX, e.offsetY);
      if (i >= 0) select(i);
    });
  }
}
byId("find").addEventListener("input", () => {
  firstRow = 0;
  const first = matching()[0];
  if (byId("find").value.trim()) select(first ? first.at : -1);
  showTable();
});
byId("table-box").addEventListener("toggle", showTable);
byId("before").addEventListener("click", () => { firstRow -= tablePage; showTable(); });
byId("after").addEventListener("click", () => { firstRow += tablePage; showTable(); });
function anew() {
  sprites.clear();
  grid.fit = map.fit = true;
  for (const li of byId("members").children) paintSwatch(li);
  for (const e of byId("ranges").children) delete e.dataset.slot;
  if (last) showRanges();
}
addEventListener("resize", anew);
dark.addEventListener("change", anew);

// --- The stream. -------------------------------------------------------------

const again = 5000; // ms, between two attempts where the server refused

function status(text, live) {
  const p = byId("status");
  if (p.textContent !== text) p.textContent = text;
  p.classList.toggle("live", live);
  document.body.classList.toggle("stale", !live && last !== null);
}

function follow() {
  const stream = new EventSource("events");
  stream.onmessage = (e) => { take(JSON.parse(e.data)); status("live", true); };
  stream.onerror = () => {
    status("no connection: what is shown is old", false);
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again
    stream.close();
    setTimeout(follow, again);
  };
}

setInterval(() => {
  showBeats();
  if (last && performance.now() - heardAt > again) status("nothing heard for " + seconds(performance.now() - heardAt), false);
}, 250);
requestAnimationFrame(frame);
follow();
