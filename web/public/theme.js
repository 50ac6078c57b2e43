// Before the first paint, so that a chosen theme does not flash the other one.
try {
  const chosen = localStorage.getItem("runwatch.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; the system's theme it is, then.
}
