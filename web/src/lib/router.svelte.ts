// The address after the #, as state.

import { formatPlace, parsePlace, withQuery, type Place } from "./model/url";

export const place = $state<Place>(parsePlace(location.hash));

addEventListener("hashchange", () => adopt(parsePlace(location.hash)));

function adopt(next: Place): void {
  place.path = next.path;
  place.query = next.query;
}

export const link = (path: string[], query: Record<string, string> = {}): string => formatPlace({ path, query });

export function go(path: string[], query: Record<string, string> = {}): void {
  location.hash = formatPlace({ path, query });
}

/** Change parts of the query.  `replace`: no new history entry, for typing and dragging. */
export function setQuery(changes: Record<string, string | null>, replace = false): void {
  const next = withQuery({ path: [...place.path], query: { ...place.query } }, changes);
  const text = formatPlace(next);
  if (text === formatPlace(place)) return;
  if (replace) history.replaceState(history.state, "", text);
  else history.pushState(null, "", text);
  adopt(next);
}

addEventListener("popstate", () => adopt(parsePlace(location.hash)));
