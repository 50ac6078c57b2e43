import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";

// The token has become a cookie by now; it should not stay in the address bar or the history.
if (new URLSearchParams(location.search).has("token")) {
  history.replaceState(history.state, "", location.pathname + location.hash);
}

const target = document.getElementById("app");
if (target) mount(App, { target });
