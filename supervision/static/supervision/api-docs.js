// Shows the schema with Swagger UI. "Try it out" works with the reader's own session.
"use strict";

(() => {
  const place = document.getElementById("api");

  window.SwaggerUIBundle({
    url: place.dataset.schema,
    domNode: place,
    deepLinking: true,
    defaultModelsExpandDepth: -1,
    validatorUrl: null,
    requestInterceptor: (request) => {
      if (!["GET", "HEAD"].includes((request.method || "GET").toUpperCase())) {
        request.headers["X-CSRFToken"] = place.dataset.token;
      }
      return request;
    },
  });
})();
