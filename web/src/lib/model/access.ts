// What who looks at the page may do; the head decides, the page only says so beforehand.

import type { Access } from "../types";

const NEEDS = {
  share: "admin",
  delete: "admin",
  capture: "operate",
  stacks: "operate",
  sessions: "operate",
} as const;

export type Deed = keyof typeof NEEDS;

/** Whether what is about the whole head, and not about runs, is answered. */
export function seesAll(access: Access): boolean {
  return access.run === null && !access.projects?.length;
}

/** Why it may not be done, as the title of a button; empty: it may. */
export function whyNot(access: Access, deed: Deed): string {
  const role = access.role ?? (access.level === "full" ? "admin" : "view");
  const need = NEEDS[deed];
  if (access.link) return "This link is for looking only.";
  if (role !== "admin" && role !== need) return `Your token is for ${role}. This needs one for ${need}.`;
  const projects = access.projects ?? [];
  if (projects.length && (deed === "share" || deed === "sessions")) {
    return `Your token is for project ${projects.join(", ")}. This needs one for all runs.`;
  }
  return "";
}
