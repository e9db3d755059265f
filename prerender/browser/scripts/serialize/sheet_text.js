// The rules of a style sheet as text; null if it is of another origin.
export const sheetText = (sheet) => {
  try { return Array.from(sheet.cssRules, (rule) => rule.cssText).join("\n"); } catch { return null; }
};
