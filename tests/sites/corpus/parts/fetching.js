postMessage(await (await fetch("/after?ms=300&text=fetched+by+a+worker")).text());
