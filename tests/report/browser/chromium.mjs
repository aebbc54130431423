// SPDX-License-Identifier: Apache-2.0
// Drives a Chromium without a window over its debugging pipe, with nothing but Node.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const flags = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
];

/** A running browser with one page. */
export class Chromium {
  static async start(program) {
    const browser = new Chromium();
    browser.profile = mkdtempSync(join(tmpdir(), "gnmr-chromium-"));
    browser.process = spawn(program, [...flags, `--user-data-dir=${browser.profile}`, "about:blank"], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    });
    browser.process.on("exit", () => browser.#fail(new Error("the browser ended")));
    browser.process.on("error", (error) => browser.#fail(error));
    browser.#read(browser.process.stdio[4]);
    const { targetInfos } = await browser.#call("Target.getTargets", {});
    const page = targetInfos.find((target) => target.type === "page");
    const { sessionId } = await browser.#call("Target.attachToTarget", { targetId: page.targetId, flatten: true });
    browser.#session = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.call(`${domain}.enable`);
    return browser;
  }

  /** A command to the page. */
  call(method, parameters = {}) {
    return this.#call(method, parameters, this.#session);
  }

  /** Calls `listener` with the parameters of every such event. */
  on(event, listener) {
    this.#listeners.push([event, listener]);
  }

  /** The value of an expression, or what a promise that it gives comes to. */
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", {
      expression, awaitPromise: true, returnByValue: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Opens an address and waits until it is loaded. */
  async open(address) {
    const loaded = new Promise((resolve) => { this.#loaded = resolve; });
    await this.call("Page.navigate", { url: address });
    await loaded;
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.#call("Browser.close", {}).catch(() => {});
    const patience = setTimeout(() => this.process.kill("SIGKILL"), 5000);
    await ended;
    clearTimeout(patience);
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }

  #session;
  #next = 1;
  #waiting = new Map();
  #listeners = [];
  #loaded = () => {};
  #failed = null;

  #call(method, params, sessionId) {
    if (this.#failed) return Promise.reject(this.#failed);
    const id = this.#next++;
    this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, method }));
  }

  #read(stream) {
    let rest = "";
    stream.setEncoding("utf8");
    stream.on("data", (chunk) => {
      const messages = (rest + chunk).split("\0");
      rest = messages.pop();
      for (const message of messages) this.#take(JSON.parse(message));
    });
  }

  #take(message) {
    if (message.method === "Page.loadEventFired") this.#loaded();
    for (const [event, listener] of this.#listeners) {
      if (event === message.method) listener(message.params);
    }
    const call = this.#waiting.get(message.id);
    if (!call) return;
    this.#waiting.delete(message.id);
    if (message.error) call.reject(new Error(`${call.method}: ${message.error.message}`));
    else call.resolve(message.result);
  }

  #fail(error) {
    this.#failed = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
