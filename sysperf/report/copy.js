"use strict";
// A button beside each block of commands. Without this script they are text as before.
for (const block of document.querySelectorAll("pre")) {
  const text = block.textContent, button = document.createElement("button");
  button.type = "button";
  button.textContent = "copy";
  button.addEventListener("click", () => {
    const said = words => { button.textContent = words; setTimeout(() => { button.textContent = "copy"; }, 1500); };
    const marked = () => { getSelection().selectAllChildren(block.firstElementChild || block); said("marked: Ctrl+C"); };
    navigator.clipboard ? navigator.clipboard.writeText(text).then(() => said("copied"), marked) : marked();
  });
  block.after(button);
  const holder = document.createElement("div");
  holder.className = "command";
  block.before(holder);
  holder.append(block, button);
}
