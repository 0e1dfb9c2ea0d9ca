// The stream of events. Reconnects by itself, and then gets a whole snapshot.

const KINDS = ["snapshot", "chat", "message", "notice", "action", "drafts", "lanes", "problem"];
const AGAIN_MS = 1000;

export function connect(onEvent, onLink) {
  const source = new EventSource("/page/events");
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => onEvent(kind, JSON.parse(event.data)));
  }
  source.addEventListener("snapshot", () => onLink(true));
  source.addEventListener("error", () => {
    onLink(false);
    // The browser's own way of trying again waits longer and longer, and gives up for good on a 502.
    source.close();
    setTimeout(() => connect(onEvent, onLink), AGAIN_MS);
  });
}
