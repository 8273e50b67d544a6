// One guest: Python in WebAssembly, which serves one call and ends. Run by wasm.py, under Deno without any permission
// but to read Pyodide's folder, and that is given back before the guest's code is seen.
//
//   harness.mjs make FOLDER           reads Python from stdin, runs it, writes the state of memory after it to stdout
//   harness.mjs serve FOLDER STATE MAX  begins with the state in the file STATE; says "ready", reads a request from stdin
//                                    until its end, writes the answer to stdout. What is printed goes to stderr, up to
//                                    somewhat more than MAX bytes: then it ends.

const [job, folder, state, most] = Deno.args;
const { stdin, stdout, stderr, exit, permissions, readFileSync } = Deno;

function readAll(from) {
  const parts = [], buffer = new Uint8Array(1 << 16);
  for (let n; (n = from.readSync(buffer)) !== null;) parts.push(buffer.slice(0, n));
  const all = new Uint8Array(parts.reduce((sum, p) => sum + p.length, 0));
  let at = 0;
  for (const part of parts) all.set(part, at), at += part.length;
  return all;
}

function writeAll(to, bytes) {
  for (let at = 0; at < bytes.length;) at += to.writeSync(bytes.subarray(at));
}

const at = folder.split("/").map(encodeURIComponent).join("/");
const { loadPyodide } = await import(`file://${at}/pyodide.mjs`);
const text = new TextEncoder();
const options = { indexURL: folder, jsglobals: Object.freeze(Object.create(null)), env: { HOME: "/", PYTHONHASHSEED: "0" }, fullStdLib: false };

if (job === "make") {
  const python = await loadPyodide({ ...options, _makeSnapshot: true });
  python.runPython(new TextDecoder().decode(readAll(stdin)));
  writeAll(stdout, python.makeMemorySnapshot());
  exit(0);
}

const python = await loadPyodide({ ...options, _loadSnapshot: readFileSync(state) });
let printed = 0;
const print = {
  write(bytes) {
    writeAll(stderr, bytes);
    printed += bytes.length;
    if (printed > Number(most)) exit(0);
    return bytes.length;
  },
};
python.setStdout(print);
python.setStderr(print);
python.setStdin({ stdin: () => null });
python.FS.readdir("/home").filter((n) => !n.startsWith(".")).forEach((n) => python.FS.chmod(`/home/${n}`, 0o555));
for (const name of ["/home", "/tmp", "/lib", "/"]) python.FS.chmod(name, 0o555);
python.globals.get("close")();
const answer = python.globals.get("answer");
const decoder = new TextDecoder();
answer('{"source": "def f(): return 1", "function": "f", "arguments": {}}'); // what compiles at its first use is compiled
for (const path of [folder, undefined]) await permissions.revoke({ name: "read", path });
for (const name of ["Deno", "process", "Worker", "localStorage", "sessionStorage", "caches", "fetch", "WebSocket"]) delete globalThis[name];

writeAll(stdout, text.encode("ready\n"));
const request = readAll(stdin);
if (request.length === 0) exit(0); // nobody wants anything any more
try {
  writeAll(stdout, text.encode(answer(decoder.decode(request))));
  exit(0);
} catch (error) {
  exit(typeof error?.status === "number" ? error.status : 70);
}
