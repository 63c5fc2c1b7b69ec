// Says how long this very page took, by the browser's own clock. Without it nothing is missing but that sentence.
"use strict";
addEventListener("load", () => setTimeout(() => {
  const place = document.querySelector("[data-timing]");
  const entry = performance.getEntriesByType("navigation")[0];
  if (!place || !entry || !location.protocol.startsWith("http")) return;
  const ms = (from, to) => (to - from).toFixed(1) + " ms";
  const resources = performance.getEntriesByType("resource").length;
  place.textContent =
    `Your browser asked for this page and had its first byte ${ms(entry.requestStart, entry.responseStart)} later, ` +
    `and all of it, with ${resources} files besides, after ${ms(entry.startTime, entry.loadEventStart)}.`;
}, 0));
