for (let percent = 0; percent <= 100; percent += 20) {
  setTimeout(() => postMessage(percent), percent * 5);
}
