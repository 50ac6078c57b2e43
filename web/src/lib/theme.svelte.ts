// Light or dark: the system's theme, unless the visitor chose one.

export type Theme = "light" | "dark";
const KEY = "runwatch.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

const root = document.documentElement;
const chosenAtStart = root.dataset.theme as Theme | undefined;

export const theme = $state<{ chosen: Theme | null; now: Theme }>({
  chosen: chosenAtStart ?? null,
  now: chosenAtStart ?? (system.matches ? "dark" : "light"),
});

system.addEventListener("change", () => {
  if (!theme.chosen) theme.now = system.matches ? "dark" : "light";
});

export function toggleTheme(): void {
  const next: Theme = theme.now === "dark" ? "light" : "dark";
  theme.now = next;
  theme.chosen = next === (system.matches ? "dark" : "light") ? null : next;
  if (theme.chosen) root.dataset.theme = theme.chosen;
  else delete root.dataset.theme;
  try {
    if (theme.chosen) localStorage.setItem(KEY, theme.chosen);
    else localStorage.removeItem(KEY);
  } catch {
    // Storage may be forbidden: then the choice lasts until the page is left.
  }
}
