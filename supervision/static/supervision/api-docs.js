// Shows the schema with Swagger UI. "Try it out" works with the reader's own session.
"use strict";

(() => {
  const token = () => document.cookie.split("; ").find((each) => each.startsWith("csrftoken="))?.slice("csrftoken=".length);

  window.SwaggerUIBundle({
    url: document.getElementById("api").dataset.schema,
    domNode: document.getElementById("api"),
    deepLinking: true,
    validatorUrl: null,
    requestInterceptor: (request) => {
      if (!["GET", "HEAD"].includes((request.method || "GET").toUpperCase()) && token()) {
        request.headers["X-CSRFToken"] = token();
      }
      return request;
    },
  });
})();
