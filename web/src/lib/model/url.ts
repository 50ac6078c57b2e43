// The address after the # holds everything that a view shows.  So links are permanent, and the page
// works under any path.

export interface Place {
  path: string[];
  query: Record<string, string>;
}

export function parsePlace(hash: string): Place {
  const text = hash.replace(/^#\/?/, "");
  const at = text.indexOf("?");
  const path = (at < 0 ? text : text.slice(0, at)).split("/").filter(Boolean).map(decoded);
  const query = Object.fromEntries(new URLSearchParams(at < 0 ? "" : text.slice(at + 1)));
  return { path, query };
}

export function formatPlace(place: Place): string {
  const path = place.path.map(encodeURIComponent).join("/");
  const query = new URLSearchParams(
    Object.entries(place.query)
      .filter(([, value]) => value !== "")
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  ).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

export function withQuery(place: Place, changes: Record<string, string | null>): Place {
  const query = { ...place.query };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") delete query[name];
    else query[name] = value;
  }
  return { path: place.path, query };
}

/** A list in one parameter; names may contain commas. */
export const parseList = (text: string | undefined): string[] =>
  text ? text.split(",").map(decoded).filter(Boolean) : [];
export const formatList = (items: readonly string[]): string =>
  items.map((item) => item.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
