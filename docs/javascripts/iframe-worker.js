/* The guide's search runs in a worker, which browsers do not start from the file system: there a hidden frame, whose
   scripts load as any other page's do, takes the worker's place. */
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      window.addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return;
        const passed = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(passed);
        if (this.onmessage) this.onmessage(passed);
      });
      const page = frame.contentWindow;
      const inside = `
        self.postMessage = data => parent.postMessage(data, "*");
        self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = done;
          script.onerror = failed;
          document.body.append(script);
        })), Promise.resolve());`;
      this.ready = new Promise(resolve => {
        this.send = data => page.dispatchEvent(new page.MessageEvent("message", { data }));
        frame.onload = resolve;
      });
      page.document.open();
      page.document.write(`<body><script>${inside}<\/script><script src="${url}"><\/script></body>`);
      page.document.close();
      this.frame = frame;
    }
    postMessage(data) {
      this.ready.then(() => this.send(data)).catch(console.error);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
