// A client of MCP. It makes the calls of a list, and says what the tools are and what was answered.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [server, calls] = process.argv.slice(2).map((text) => JSON.parse(text));
const transport = server.url
  ? new StreamableHTTPClientTransport(new URL(server.url), {
      requestInit: { headers: server.headers },
    })
  : new StdioClientTransport(server);
const client = new Client({ name: "node", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const answers = [];
for (const call of calls) answers.push(await client.callTool(call));
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), answers }));
await client.close();
