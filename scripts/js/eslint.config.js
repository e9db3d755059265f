import js from "@eslint/js";
import globals from "globals";

const unused = ["error", { argsIgnorePattern: "^_", caughtErrors: "none" }];

export default [
  { files: ["prerender/**/*.js"], ...js.configs.recommended },
  {
    files: ["prerender/**/*.js"],
    linterOptions: { reportUnusedDisableDirectives: "error" },
    languageOptions: { ecmaVersion: "latest", sourceType: "module", globals: globals.browser },
    rules: {
      "no-unused-vars": unused,
      "no-control-regex": "off", // snapshots contain no control characters
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
      "no-shadow": ["error", { hoist: "functions" }],
      "no-use-before-define": ["error", { functions: false, variables: false }],
    },
  },
  // Parameters of the functions that the modules become (serializer.py).
  { files: ["**/scripts/serialize/*.js"], languageOptions: { globals: { options: "readonly", sheets: "readonly" } } },
  { files: ["**/scripts/*.js"], languageOptions: { sourceType: "script" } },
];
