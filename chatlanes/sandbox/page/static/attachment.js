// A picture to be sent: picked, pasted or dropped, with a preview. One at a time.

import { h, icon } from "./dom.js";
import { tell } from "./world.js";

export class Attachment {
  constructor() {
    this.file = null;
    this.picker = h("input", { type: "file", accept: "image/*", hidden: true, tabIndex: -1 });
    this.picker.setAttribute("aria-label", "Photo");
    this.picker.addEventListener("change", () => this.take(this.picker.files));
    this.button = h("button.attach", { type: "button", title: "Photo", "aria-label": "Attach a photo", onclick: () => this.picker.click() }, icon("clip"), this.picker);
    this.picker.addEventListener("click", (event) => event.stopPropagation());
    this.image = h("img", { alt: "" });
    this.name = h("span");
    const remove = h("button.quiet.square", { type: "button", "aria-label": "Remove the photo", onclick: () => this.clear() }, icon("close"));
    this.preview = h("div.preview", { hidden: true }, this.image, this.name, remove);
  }

  take(files, event) {
    const [file] = files;
    if (!file) return;
    event?.preventDefault();
    if (!file.type.startsWith("image/")) {
      tell("refused", new Error(`${file.name} is not a picture; the page sends only photos.`));
      return;
    }
    this.clear();
    this.file = file;
    this.image.src = URL.createObjectURL(file);
    this.name.textContent = `${file.name || "Photo"}, with what you write below it`;
    this.preview.hidden = false;
  }

  clear() {
    if (this.image.src) URL.revokeObjectURL(this.image.src);
    this.image.removeAttribute("src");
    this.picker.value = "";
    this.file = null;
    this.preview.hidden = true;
  }
}
