// Requests to the server. A refusal is an Error with the server's sentence as its message.

async function ask(path, options) {
  let response;
  try {
    response = await fetch(`/page/${path}`, options);
  } catch {
    throw new Error("The sandbox does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The sandbox answered ${response.status}.`);
  return answer;
}

const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const api = {
  update: (id) => ask(`updates/${id}`),
  newChat: (type, title, users) => post("chats", { type, title, users }),
  send: (chat_id, user_id, text, reply_to) => post("send", { chat_id, user_id, text, reply_to }),
  press: (chat_id, user_id, message_id, data) => post("press", { chat_id, user_id, message_id, data }),
  edit: (chat_id, user_id, message_id, text) => post("edit", { chat_id, user_id, message_id, text }),
  stop: (chat_id, message_thread_id) => post("stop", { chat_id, message_thread_id }),
  clear: (chat_id) => post("clear", { chat_id }),
  flood: (count) => post("flood", { count }),
  kill: (worker) => post("kill", { worker }),
  replay: (update_id) => post("replay", { update_id }),
  slow: (slow) => post("slow", { slow }),
  pauseBroadcast: (id, paused) => post("broadcast", { id, paused }),
  restart: () => post("restart", {}),
  photos(chat_id, user_id, caption, files) {
    const body = new FormData();
    for (const [name, value] of Object.entries({ chat_id, user_id, caption })) body.append(name, value);
    for (const file of files) body.append("file", file, file.name || "photo.png");
    return ask("photos", { method: "POST", body });
  },
};
