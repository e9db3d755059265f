window.onload = function () {
  window.ui = SwaggerUIBundle({
    url: "/docs/openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    docExpansion: "full",
    defaultModelRendering: "model",
    defaultModelsExpandDepth: 2,
    defaultModelExpandDepth: 2,
    presets: [SwaggerUIBundle.presets.apis, SwaggerUIStandalonePreset],
    validatorUrl: null, // its badge would come from another company
    layout: "StandaloneLayout",
  });
};
