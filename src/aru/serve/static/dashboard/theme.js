// Runs before the page is painted: the theme that was chosen here, else that of the system.
"use strict";
try {
  const theme = localStorage.getItem("aru-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme is fine.
}
