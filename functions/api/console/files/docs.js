// The API reference: Swagger UI on the server's own OpenAPI document. Requests have the console's key.

const key = () => sessionStorage.getItem("headrace.key") ?? "";

// The colours of the console: those that were chosen there, or the system's.
const system = matchMedia("(prefers-color-scheme: dark)");
const colour = () => {
  const chosen = localStorage.getItem("headrace.theme") ?? "auto";
  document.documentElement.classList.toggle("dark-mode", chosen === "dark" || (chosen === "auto" && system.matches));
};
system.addEventListener("change", colour);
colour();

// What Swagger UI leaves out for keyboards and screen readers: [selector, attribute, value].
const MISSING = [
  [".info .title", "aria-level", () => "2"], // the page's own heading is above it
  [".information-container", "role", () => "region"],
  [".information-container", "aria-label", () => "About this API"],
  [".filter", "aria-label", () => "Filter"],
  ["table.responses-table", "aria-label", (table) => `Responses of ${table.closest(".opblock").id}${table.classList.contains("live-responses-table") ? ", live" : ""}`],
  ["[data-param-name] select", "aria-label", (select) => select.closest("[data-param-name]").dataset.paramName],
  ["textarea.body-param__text", "aria-label", () => "Request body"],
  ["pre.microlight", "tabindex", () => "0"],
];
const mend = () => {
  for (const [selector, attribute, value] of MISSING)
    for (const element of document.querySelectorAll(`:is(${selector}):not([${attribute}])`)) element.setAttribute(attribute, value(element));
};
const reference = document.getElementById("reference");
new MutationObserver(mend).observe(reference, { childList: true, subtree: true });

window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  domNode: reference,
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  validatorUrl: null,
  syntaxHighlight: { activated: false },
  onComplete: () => key() && window.ui.preauthorizeApiKey("key", key()),
});
