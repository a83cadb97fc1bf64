// Loaded before a server: it is killed as soon as it has written `once.txt`, and knows nothing of it.
import fs from "node:fs/promises";

const write = fs.writeFile;
fs.writeFile = async (path, ...rest) => {
  await write(path, ...rest);
  if (path.endsWith("/once.txt")) process.kill(process.pid, "SIGKILL");
};
