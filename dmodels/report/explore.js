// Sliders and numbers move together; each change asks again, for the words first and for the pictures when nothing has
// moved for a moment. One question is under way at a time, and the newest waits.
"use strict";
const form = document.querySelector("form");
const answer = document.getElementById("answer");
const pictures = document.getElementById("pictures");
const status = document.getElementById("status");
document.body.classList.add("scripted");
let busy = false;
let waiting = false;
let drawing = 0;

const settings = () => new URLSearchParams(new FormData(form)).toString();

async function ask() {
  clearTimeout(drawing);
  pictures.classList.add("old");
  if (busy) { waiting = true; return; }
  busy = true;
  const began = performance.now();
  const sought = settings();
  answer.classList.add("old");
  try {
    const reply = await fetch("/answer?" + sought);
    const text = await reply.text();
    status.classList.toggle("bad", !reply.ok);
    if (reply.ok) {
      answer.innerHTML = text;
      status.textContent = `Answered in ${Math.round(performance.now() - began)} ms.`;
      answer.classList.remove("old");
      history.replaceState(null, "", "/?" + sought);
      lead(sought);
      if (!waiting) drawing = setTimeout(() => draw(sought), 250);
    } else {
      status.textContent = text;
    }
  } catch {
    status.classList.add("bad");
    status.textContent = "The server has stopped; start `dmodels explore` again.";
  }
  busy = false;
  if (waiting) { waiting = false; ask(); }
}

async function draw(sought) {
  try {
    const reply = await fetch("/pictures?" + sought);
    const text = await reply.text();
    if (reply.ok && sought === settings()) {
      pictures.innerHTML = text;
      pictures.classList.remove("old");
    }
  } catch { /* the next question says that the server has stopped */ }
}

function lead(sought) {
  for (const link of document.querySelectorAll("a[data-with-settings]")) {
    link.href = link.pathname + "?" + sought;
  }
}
lead(settings());

for (const slider of document.querySelectorAll("input[type=range]")) {
  const number = document.getElementById(slider.dataset.for);
  const low = Number(slider.dataset.low);
  const high = Number(slider.dataset.high);
  const open = "open" in slider.dataset;
  const whole = "whole" in slider.dataset;
  const valueAt = (place) => low > 0 ? low * (high / low) ** place : high * place;
  const placeOf = (value) => low > 0 ? Math.log(value / low) / Math.log(high / low) : value / high;
  slider.addEventListener("input", () => {
    const value = valueAt(slider.value / 1000);
    const shown = whole ? Math.round(value) : Number(value.toPrecision(3));
    number.value = open && Number(slider.value) === 1000 ? "" : String(shown);
    slider.setAttribute("aria-valuetext", number.value || "any");
    ask();
  });
  number.addEventListener("input", () => {
    const place = open && number.value === "" ? 1 : placeOf(Number(number.value));
    if (Number.isFinite(place)) slider.value = 1000 * place;
    ask();
  });
}
form.addEventListener("change", (event) => { if (event.target.tagName === "SELECT") ask(); });
form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
