await new Promise((later) => setTimeout(later, 300));
export const text = await (await fetch("/after?ms=100&text=awaited+in+a+module")).text();
