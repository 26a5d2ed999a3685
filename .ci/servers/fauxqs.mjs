// Starts fauxqs, prints its endpoint, and ends with its input. Its own command line would bind every interface.
import { buildApp } from "fauxqs";

const app = buildApp({ logger: false });
console.log(await app.listen({ port: 0, host: "127.0.0.1" }));
process.stdin.resume().on("end", () => process.exit());
