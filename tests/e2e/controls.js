// What a control is called: `page: kind name`.  The same for the walk over all pages and for what a
// test operates, so that the two can be compared.
(() => {
  const KINDS = { A: "link", BUTTON: "button", SELECT: "choice", SUMMARY: "fold", TEXTAREA: "field" };
  const INPUTS = { checkbox: "tick", range: "slider", radio: "tick" };
  const AREAS = ".u-over, .lanes .plot, .hosts";
  const SELECTOR = `a[href], button, input, select, textarea, summary, [tabindex="0"], ${AREAS}`;

  // Where there is one for each thing that was recorded.
  const NAMED = [
    ["section[aria-label^=What] li button", "something that happened"],
    [".menu input[type=checkbox]", "a metric"],
    [".parts summary", "a branch"],
    [".list .row a", "the time of a line"], [".list .row button", "an exception"],
    [".lanes", ""], ["[role=application]", ""], ["svg[tabindex]", ""],
  ];

  function page(element) {
    if (element.closest("header, .skip, .stale, .attention")) return "every page";
    if (element.closest("main > .head, main > nav, main > [aria-labelledby=share-title], main > [aria-labelledby=delete-title]")) return "run";
    const [first, , tab] = location.hash.replace(/^#\/?/, "").split("?")[0].split("/");
    const lockedOut = document.querySelector("main h1")?.innerText.startsWith("You are no longer");
    if (lockedOut || document.getElementById("token")) return "login";
    if (first === "run") return tab || "timeline";
    return first || "runs";
  }

  function kind(element) {
    const lane = element.closest("[data-lane]")?.dataset.lane;
    if (element.matches(".lanes .plot")) return `lane ${lane.replace(/:.*/, "")}`;
    if (element.matches(".u-over")) return "chart";
    if (element.matches(".hosts")) return "squares";
    if (element.matches("input")) return INPUTS[element.type] ?? "field";
    if (element.matches(".lanes")) return "timeline";
    if (element.matches("[role=application]")) return "heat map";
    if (element.matches("svg[tabindex]")) return "bars over time";
    return KINDS[element.tagName] ?? "area";
  }

  function words(element) {
    if (element.matches(AREAS)) return "";
    const named = NAMED.find(([selector]) => element.matches(selector));
    if (named) return named[1];
    const label = element.labels?.[0]?.cloneNode(true);
    label?.querySelectorAll("select, output, .quiet, input").forEach((one) => one.remove());
    const own = element.matches("input, select") ? "" : element.innerText;
    const name = element.getAttribute("aria-label") || label?.textContent || own || element.placeholder || element.title;
    return (name ?? "").replace(/[▲▼▾▸✕↗\s]+/g, " ").trim();
  }

  const called = (element) => [page(element), kind(element), words(element)];
  window.controls = {
    all: () => [...document.querySelectorAll(SELECTOR)].filter((one) => one.checkVisibility()).flatMap((one) => {
      const keys = one.getAttribute("aria-keyshortcuts")?.split(" ") ?? [];
      return [[...called(one), ""], ...keys.map((key) => [...called(one), key])];
    }),
    of: (element) => {
      const found = element?.closest(SELECTOR) ?? element?.closest("label")?.control;
      return found ? called(found) : null;
    },
  };
})();
