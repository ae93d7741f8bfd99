// Keys for the comparison page. Everything works without this file: the answers are radio buttons.
"use strict";

for (const field of document.querySelectorAll("[data-select]")) {
  field.addEventListener("focus", () => field.select());
}

const form = document.querySelector("form[data-answers]");
if (form) {
  const choices = [...form.querySelectorAll("input[name=choice]")];
  const writing = (node) => node.closest("textarea, input[type=text]") !== null;

  const choose = (index) => {
    choices[index].checked = true;
    choices[index].focus();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (writing(event.target)) return;
    const number = "1234".indexOf(event.key);
    if (event.key.length === 1 && number >= 0) {
      choose(number);
      event.preventDefault();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const step = event.key === "ArrowRight" ? 1 : -1;
      const now = choices.findIndex((choice) => choice.checked);
      choose(now < 0 ? (step > 0 ? 0 : choices.length - 1) : (now + step + choices.length) % choices.length);
      event.preventDefault();
    } else if (event.key === "Enter" && !event.target.closest("a, button, summary")) {
      form.requestSubmit();
      event.preventDefault();
    }
  });

  const button = form.querySelector("button[type=submit]");
  form.addEventListener("submit", () => { button.disabled = true; });
  window.addEventListener("pageshow", () => { button.disabled = false; });
}
