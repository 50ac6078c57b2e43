import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";

// The token is a cookie by now: remove it from the address bar and the history.
if (new URLSearchParams(location.search).has("token")) {
  history.replaceState(history.state, "", location.pathname + location.hash);
}

const target = document.getElementById("app");
if (target) mount(App, { target });
