document.getElementById("out").textContent = "done: by an inserted script";
