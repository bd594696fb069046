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

window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("reference"),
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  validatorUrl: null,
  syntaxHighlight: { activated: false },
  onComplete: () => key() && window.ui.preauthorizeApiKey("key", key()),
});
