// What textual.js asks of its page: where the web socket is, and what becomes of its dialogs.
"use strict";

const here = new URL(".", location.href);
const terminal = document.getElementById("terminal");
terminal.dataset.sessionWebsocketUrl = `ws://${here.host}${here.pathname}ws`;

// It opens downloads at the server's top, where this browser's cookie is not sent.
const open = window.open.bind(window);
window.open = (url, target) => open(String(url).replace(`${here.origin}/download/`, `${here}download/`), target, "noopener");

// textual.js makes the terminal in its own `onload`, which was set before this one.
window.addEventListener("load", () => terminal.querySelector("textarea").focus());

const again = document.querySelector(".ended button");
again.addEventListener("click", () => location.reload());
new MutationObserver(() => again.focus()).observe(document.body, { attributeFilter: ["class"] });
