// The API reference: Swagger UI on the server's own OpenAPI document. Requests have the console's key.

const key = () => sessionStorage.getItem("headrace.key") ?? "";

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
