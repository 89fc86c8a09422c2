// What script adds to the pages of `serve`: they load again by themselves, "/" goes to the search, commands are copied
// by a button. Every page is whole without it.
"use strict";
(() => {
  const LIVE = "X-Mm2mgr-Live"; // a load by this script is no visit
  const CARRIED = ["live", "refresh"]; // what links and searches of a page keep of its address
  const HIDDEN_SECONDS = 60; // at least, between two loads of a tab that nobody sees: its title counts the problems
  const OLD_SECONDS = 300; // at least, until a page that does not load again is grey
  const head = document.getElementById("head");
  const answer = document.getElementById("answer");
  const pause = document.getElementById("pause");
  if (!head || !answer || !pause) return;
  const every = Number(head.dataset.every) || 30;
  let seconds = Number(head.dataset.live) || 0;
  let next = Date.now() + 1000 * seconds;
  let loadedAt = Date.now();
  let lookedAt = 0;
  let silentSince = null;
  let loading = false;

  const main = () => document.getElementById("main");
  const clock = (time) => `${new Date(time).toISOString().slice(11, 19)} UTC`;

  function spanText(age) {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (age >= 2 * size) return `${Math.floor(age / size)} ${unit}`;
    }
    return `${Math.floor(age)} s`;
  }

  function tellAge() {
    const looked = document.getElementById("looked");
    if (!looked || !looked.dataset.age) return;
    looked.textContent = looked.dataset.said.replace("AGE", spanText((Date.now() - lookedAt) / 1000));
  }

  function readAge() {
    const looked = document.getElementById("looked");
    if (looked && looked.dataset.age) lookedAt = Date.now() - 1000 * Number(looked.dataset.age);
  }

  // --- what a person has opened, focused and scrolled stays -----------------------------------------------------------

  function keyed(elements, name) {
    const counts = new Map();
    return new Map(elements.map((element) => {
      const key = name(element);
      const count = counts.get(key) || 0;
      counts.set(key, count + 1);
      return [`${key}#${count}`, element];
    }));
  }

  const summaryOf = (details) => {
    const summary = details.querySelector("summary");
    return details.id || details.dataset.key || (summary ? summary.textContent.replace(/\d+/g, "0") : "");
  };
  const nameOf = (element) => `${element.tagName} ${element.id || element.getAttribute("href")
    || element.getAttribute("aria-label") || element.getAttribute("name") || element.textContent}`;
  const detailsIn = (part) => keyed([...part.querySelectorAll("details")], summaryOf);
  const regionsIn = (part) => keyed([...part.querySelectorAll("[role=region]")], nameOf);
  const focusable = (part) => keyed([...part.querySelectorAll("a[href], summary, button, [tabindex]")], nameOf);

  function swap(page) {
    const before = main();
    const after = page.getElementById("main");
    if (!before || !after) return;
    decorate(after);
    const told = new Set([...before.querySelectorAll(".warn")].map((warning) => warning.textContent));
    for (const alert of after.querySelectorAll("[role=alert]")) { // read aloud once, not with every load
      if (told.has(alert.textContent)) alert.removeAttribute("role");
    }
    const opened = new Map([...detailsIn(before)].map(([key, element]) => [key, element.open]));
    const places = new Map([...regionsIn(before)].map(([key, e]) => [key, [e.scrollLeft, e.scrollTop]]));
    const focused = before.contains(document.activeElement)
      ? [...focusable(before)].find(([, element]) => element === document.activeElement) : undefined;
    const [left, top] = [window.scrollX, window.scrollY];
    for (const [key, element] of detailsIn(after)) if (opened.has(key)) element.open = opened.get(key);
    before.replaceWith(document.adoptNode(after));
    for (const [key, element] of regionsIn(after)) {
      if (places.has(key)) [element.scrollLeft, element.scrollTop] = places.get(key);
    }
    if (focused) focusable(after).get(focused[0])?.focus({ preventScroll: true });
    window.scrollTo(left, top);
    document.title = page.title;
    for (const part of ["who", "looked"]) {
      const newer = page.getElementById(part);
      if (newer) document.getElementById(part).replaceWith(document.adoptNode(newer));
    }
    readAge();
    document.dispatchEvent(new CustomEvent("mm2mgr:load"));
  }

  // --- live ---------------------------------------------------------------------------------------------------------

  function isBusy() {
    const selected = window.getSelection();
    const field = document.activeElement;
    const types = field && main().contains(field) && /^(INPUT|SELECT|TEXTAREA)$/.test(field.tagName);
    return loading || types || Boolean(selected && selected.type === "Range");
  }

  async function load() {
    loading = true;
    try {
      const limit = AbortSignal.timeout(10000);
      const got = await fetch(location.href, { headers: { [LIVE]: "1" }, cache: "no-store", signal: limit });
      if (got.status !== 200 && got.status !== 404) throw new Error(String(got.status));
      const page = new DOMParser().parseFromString(await got.text(), "text/html");
      silentSince = null;
      if (isSelecting()) return;
      swap(page);
      loadedAt = Date.now();
      answer.hidden = true;
    } catch {
      silentSince = silentSince || Date.now();
      tellOld(`No answer since ${clock(silentSince)}`);
    } finally {
      loading = false;
      next = Date.now() + 1000 * seconds;
    }
  }

  function tellOld(reason) {
    const text = `${reason}: what is shown is older, and may be wrong by now.`;
    if (answer.hidden || answer.textContent !== text) answer.textContent = text;
    answer.hidden = false;
    main().classList.add("stale");
  }

  const isSelecting = () => window.getSelection()?.type === "Range";

  function setLive(value) {
    seconds = value;
    next = Date.now(); // at once: what is shown may be old
    const address = new URL(location.href);
    for (const name of ["live", "again"]) address.searchParams.delete(name);
    if (!value) address.searchParams.set("live", "off");
    history.replaceState(null, "", address);
    carry();
    tellLive();
  }

  // Links and searches keep a pause, and an interval that is the page's own.
  function carry() {
    const here = new URLSearchParams(location.search);
    for (const link of document.querySelectorAll("a[href^='/']")) {
      const there = new URL(link.getAttribute("href"), location.href);
      for (const name of CARRIED) {
        there.searchParams.delete(name);
        if (here.has(name)) there.searchParams.set(name, here.get(name));
      }
      link.setAttribute("href", there.pathname + there.search + there.hash);
    }
    for (const form of document.querySelectorAll("form[action^='/']")) {
      for (const name of CARRIED) {
        form.querySelector(`input[type=hidden][name=${name}]`)?.remove();
        if (!here.has(name)) continue;
        const field = document.createElement("input");
        [field.type, field.name, field.value] = ["hidden", name, here.get(name)];
        form.append(field);
      }
    }
  }

  function tellLive() {
    pause.textContent = seconds ? "Pause" : "Live";
    pause.title = seconds ? `Loads again every ${seconds} s` : "Does not load again";
    pause.hidden = false;
  }

  pause.addEventListener("click", () => setLive(seconds ? 0 : every));

  // --- keyboard and commands ------------------------------------------------------------------------------------------

  document.addEventListener("keydown", (event) => {
    const field = event.target instanceof Element && event.target.closest("input, select, textarea");
    if (event.key === "Escape" && field && field.type === "search" && field.value === "") field.blur(); // the first one empties it
    if (event.key !== "/" || field || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    (document.querySelector(".find [name=q]") || document.getElementById("q"))?.focus();
  });

  // For those who do not see the button change; emptied before, so that the same words are read again.
  function announce(text) {
    const told = document.getElementById("told");
    if (!told) return;
    told.textContent = "";
    setTimeout(() => { told.textContent = text; }, 50);
  }

  function decorate(part) {
    for (const command of part.querySelectorAll(".command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", `Copy ${command.textContent}`);
      command.after(button);
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
    const command = button?.previousElementSibling;
    if (!button || !command) return;
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
      announce(`Copied: ${command.textContent}`);
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch { // no clipboard here: what is selected is copied by the keyboard
      window.getSelection()?.selectAllChildren(command);
      button.textContent = "Press Ctrl+C";
      announce("Selected; press Ctrl+C to copy");
    }
  });

  decorate(main());
  readAge();
  tellLive();
  setInterval(() => {
    tellAge();
    const waits = document.hidden ? 1000 * Math.max(0, HIDDEN_SECONDS - seconds) : 0;
    if (seconds && Date.now() >= next + waits && !isBusy()) load();
    const isOld = Date.now() - loadedAt > 1000 * Math.max(OLD_SECONDS, 3 * (seconds || every));
    if (isOld && !silentSince) tellOld(`Not loaded since ${clock(loadedAt)}`);
  }, 1000);
})();
