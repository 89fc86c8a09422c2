// What script adds to the list of flows: it is searched while a person types, and filters count at once.
// The server answers as it does without script; only what was found is put in the place of what was there.
"use strict";
(() => {
  const WAIT = 200; // milliseconds without another key
  const LIVE = "X-Mm2mgr-Live"; // such a load is no visit
  let waiting = 0;
  let asked = 0;

  function addressOf(form) {
    const fields = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(fields).toString();
    return form.getAttribute("action") + (query ? `?${query}` : "");
  }

  async function find(form) {
    const number = ++asked;
    const address = addressOf(form);
    try {
      const got = await fetch(address, { headers: { [LIVE]: "1" }, cache: "no-store" });
      if (!got.ok) throw new Error(String(got.status));
      const page = new DOMParser().parseFromString(await got.text(), "text/html");
      const [here, found] = [document.getElementById("found"), page.getElementById("found")];
      if (number !== asked || !here || !found) return; // a later key asked for something else
      here.replaceWith(document.adoptNode(found));
      for (const select of form.querySelectorAll("select")) {
        const other = page.querySelector(`.find select[name="${select.name}"]`);
        if (!other || select === document.activeElement) continue;
        select.replaceChildren(...[...other.options].map((option) => option.cloneNode(true)));
        select.value = other.value;
      }
      history.replaceState(null, "", address);
    } catch {
      // the button still asks the server
    }
  }

  const formOf = (event) => event.target instanceof Element ? event.target.closest("form.find") : null;

  document.addEventListener("input", (event) => {
    const form = formOf(event);
    if (!form) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => find(form), event.target.type === "search" ? WAIT : 0);
  });
})();
