// What the visitor of this page may do.

import * as api from "./api";
import type { Access } from "./types";

/** The default: an older head, which sends no access, lets every visitor do everything. */
export const access = $state<Access>({
  level: "full",
  role: null,
  run: null,
  projects: [],
  expires_ns: null,
  note: "",
  link: false,
  login: false,
});

let request: Promise<void> | null = null;

export function learnAccess(): Promise<void> {
  request ??= api.access().then(
    (answer) => void Object.assign(access, answer),
    () => {
      request = null;
    },
  );
  return request;
}
