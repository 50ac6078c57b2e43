// What the visitor may do.  The head decides; the page only shows it beforehand.

import type { Access } from "../types";

const NEEDS = {
  share: "admin",
  delete: "admin",
  capture: "operate",
  stacks: "operate",
  sessions: "operate",
} as const;

export type Deed = keyof typeof NEEDS;

/** Whether the head answers requests about all of it, not only about some runs. */
export function seesAll(access: Access): boolean {
  return access.run === null && !access.projects?.length;
}

/** Why it is not allowed, as the title of a button; empty if it is allowed. */
export function whyNot(access: Access, deed: Deed): string {
  const role = access.role ?? (access.level === "full" ? "admin" : "view");
  const need = NEEDS[deed];
  if (access.link) return "This link is read-only.";
  if (role !== "admin" && role !== need) return `Your token is for ${role}. This needs one for ${need}.`;
  const projects = access.projects ?? [];
  if (projects.length && (deed === "share" || deed === "sessions")) {
    return `Your token is for project ${projects.join(", ")}. This needs one for all runs.`;
  }
  return "";
}
