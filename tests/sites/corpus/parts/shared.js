onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data: [a, b] }) => {
    setTimeout(() => port.postMessage(`${a} * ${b} = ${a * b}`), 100);
  };
};
