// Shows how long this page took to load, by the browser's clock. Without JavaScript only that sentence is missing.
"use strict";
addEventListener("load", () => setTimeout(() => {
  const place = document.querySelector("[data-timing]");
  const entry = performance.getEntriesByType("navigation")[0];
  if (!place || !entry || !location.protocol.startsWith("http")) return;
  const ms = (from, to) => (to - from).toFixed(1) + " ms";
  const resources = performance.getEntriesByType("resource").length;
  place.textContent =
    `Your browser requested this page, received its first byte after ${ms(entry.requestStart, entry.responseStart)}, ` +
    `and had loaded it, with ${resources} other files, after ${ms(entry.startTime, entry.loadEventStart)}.`;
}, 0));
