// The state of the page, of bounded size. Notifies the modules that draw it.

/** Per chat; the server sends as many in a snapshot. */
const MOST_MESSAGES = 200;
const MOST_PROBLEMS = 50;
/** Telegram shows "typing" this long after sendChatAction. */
const TYPING_MS = 5000;

export const world = { bot: null, chats: new Map(), lanes: null, problems: [], unseenProblems: 0 };

const listeners = new Map();

export function on(what, listener) {
  listeners.set(what, [...(listeners.get(what) ?? []), listener]);
}

export function tell(what, ...details) {
  for (const listener of listeners.get(what) ?? []) listener(...details);
}

/** What a request answers; null if it is refused, which is shown. */
export async function asking(what) {
  try {
    return await what();
  } catch (error) {
    tell("refused", error);
    return null;
  }
}

class Chat {
  constructor(info) {
    this.info = info;
    this.messages = new Map();
    this.ids = []; // ascending
    this.unread = 0;
    this.typingUntil = 0;
    this.action = null;
    this.drafts = [];
  }

  /** A draft vanishes by itself; its end is reckoned from now. */
  preview(drafts) {
    this.drafts = drafts.map((draft) => ({ ...draft, endsAt: Date.now() + draft.ends_in_s * 1000 }));
  }

  emptied(info) {
    this.info = info;
    this.messages.clear();
    this.ids = [];
    this.drafts = [];
    return this;
  }

  put(message) {
    const id = message.message_id;
    if (!this.messages.has(id)) {
      let place = this.ids.length;
      while (place > 0 && this.ids[place - 1] > id) place -= 1;
      this.ids.splice(place, 0, id);
      if (this.ids.length > MOST_MESSAGES) this.messages.delete(this.ids.shift());
      if (place === 0 && this.ids[0] !== id) return;
    }
    this.messages.set(id, message);
  }

  /** The current reply keyboard: that of the newest message that sets or removes one. */
  get keyboard() {
    for (let place = this.ids.length - 1; place >= 0; place -= 1) {
      const { keyboard } = this.messages.get(this.ids[place]);
      if (keyboard) return keyboard;
    }
    return [];
  }

  lastOwn(userId) {
    const own = this.ids.filter((id) => this.messages.get(id).user.id === userId && !this.messages.get(id).deleted);
    return this.messages.get(own.at(-1)) ?? null;
  }
}

const HANDLERS = {
  snapshot(data) {
    world.bot = data.bot;
    world.lanes = data.lanes;
    world.problems = data.problems.slice(-MOST_PROBLEMS);
    // Chats that still exist keep their object, so that unsent text survives a restart.
    world.chats = new Map(data.chats.map((info) => [info.id, world.chats.get(info.id)?.emptied(info) ?? new Chat(info)]));
    for (const message of data.messages) world.chats.get(message.chat_id)?.put(message);
    for (const [id, chat] of world.chats) chat.preview(data.drafts.filter((draft) => draft.chat_id === id));
    tell("snapshot");
    tell("lanes");
    tell("problems");
  },
  chat(info) {
    const known = world.chats.get(info.id);
    if (known) known.info = info;
    else world.chats.set(info.id, new Chat(info));
    tell("chats", info.id);
  },
  message(message) {
    const chat = world.chats.get(message.chat_id);
    if (!chat) return;
    const isNew = !chat.messages.has(message.message_id);
    chat.put(message);
    if (isNew && message.user.is_bot) chat.typingUntil = 0;
    tell("message", chat, message, isNew);
  },
  notice(notice) {
    tell("notice", notice);
  },
  action({ chat_id, action }) {
    const chat = world.chats.get(chat_id);
    if (!chat) return;
    chat.action = action;
    chat.typingUntil = Date.now() + TYPING_MS;
    tell("action", chat);
  },
  drafts({ chat_id, drafts }) {
    const chat = world.chats.get(chat_id);
    if (!chat) return;
    chat.preview(drafts);
    tell("drafts", chat);
  },
  lanes(lanes) {
    world.lanes = lanes;
    tell("lanes");
  },
  problem(problem) {
    const place = world.problems.findIndex((known) => known.id === problem.id);
    if (place >= 0) world.problems = world.problems.with(place, problem);
    else world.problems = [...world.problems, problem].slice(-MOST_PROBLEMS);
    if (!problem.solved) world.unseenProblems += 1;
    tell("problems", problem);
  },
};

export const handle = (kind, data) => HANDLERS[kind](data);
