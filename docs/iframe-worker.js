// Browsers start no workers on pages from file://; the search of the site runs in a hidden frame there instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source === inner) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      inner.document.open();
      inner.document.write(`<script>postMessage = (data) => parent.dispatchEvent(new MessageEvent("message", { data, source: window }))</script><script src="${url}"></script>`);
      inner.document.close();
      this.ready = new Promise((resolve) => { inner.onload = resolve; });
      this.inner = inner;
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }
  };
}
