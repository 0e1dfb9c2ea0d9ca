// Pictures to be sent: picked, pasted or dropped, with a preview. Several are one album.

import { h, icon } from "./dom.js";
import { tell } from "./world.js";

const MOST = 10;

export class Attachment {
  constructor() {
    this.files = [];
    this.picker = h("input", { type: "file", accept: "image/*", multiple: true, hidden: true, tabIndex: -1 });
    this.picker.setAttribute("aria-label", "Photo");
    this.picker.addEventListener("change", () => this.take(this.picker.files));
    this.button = h("button.attach", { type: "button", title: "Photos", "aria-label": "Attach photos", onclick: () => this.picker.click() }, icon("clip"), this.picker);
    this.picker.addEventListener("click", (event) => event.stopPropagation());
    this.images = h("div");
    this.name = h("span");
    const remove = h("button.quiet.square", { type: "button", "aria-label": "Remove the photos", onclick: () => this.clear() }, icon("close"));
    this.preview = h("div.preview", { hidden: true }, this.images, this.name, remove);
  }

  take(files, event) {
    const taken = [...files];
    if (!taken.length) return;
    event?.preventDefault();
    const other = taken.find((file) => !file.type.startsWith("image/"));
    if (other) return this.refuse(`${other.name} is not a picture; the page sends only photos.`);
    if (taken.length > MOST) return this.refuse(`An album has at most ${MOST} photos.`);
    this.clear();
    this.files = taken;
    this.images.replaceChildren(...taken.map((file) => h("img", { alt: "", src: URL.createObjectURL(file) })));
    const what = taken.length > 1 ? `An album of ${taken.length} photos` : taken[0].name || "Photo";
    this.name.textContent = `${what}, with what you write below it`;
    this.preview.hidden = false;
  }

  refuse(reason) {
    tell("refused", new Error(reason));
  }

  clear() {
    for (const image of this.images.children) URL.revokeObjectURL(image.src);
    this.images.replaceChildren();
    this.picker.value = "";
    this.files = [];
    this.preview.hidden = true;
  }
}
