// Sliders and numbers move together; each change asks again. One question is under way at a time, and the newest waits.
"use strict";
const form = document.querySelector("form");
const answer = document.getElementById("answer");
const status = document.getElementById("status");
document.body.classList.add("scripted");
let busy = false;
let waiting = false;

const settings = () => new URLSearchParams(new FormData(form)).toString();

async function ask() {
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

for (const slider of document.querySelectorAll("input[type=range]")) {
  const number = document.getElementById(slider.dataset.for);
  const low = Number(slider.dataset.low);
  const high = Number(slider.dataset.high);
  slider.addEventListener("input", () => {
    const value = low * (high / low) ** (slider.value / 1000);
    number.value = String(Number(value.toPrecision(3)));
    slider.setAttribute("aria-valuetext", number.value);
    ask();
  });
  number.addEventListener("input", () => {
    const place = 1000 * Math.log(number.value / low) / Math.log(high / low);
    if (Number.isFinite(place)) slider.value = place;
    ask();
  });
}
form.addEventListener("change", (event) => { if (event.target.tagName === "SELECT") ask(); });
form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
