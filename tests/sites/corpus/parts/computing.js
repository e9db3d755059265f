// Computes for about 200 ms of real time.
onmessage = ({ data: limit }) => {
  const end = performance.now() + 200;
  let primes = [];
  do {
    primes = [];
    for (let number = 2; number < limit; number++) {
      if (primes.every((prime) => number % prime)) primes.push(number);
    }
  } while (performance.now() < end);
  postMessage(primes.length);
};
