// Starts local-aws-sqs, prints its endpoint, and ends with its input.
import { createServer } from "node:net";
import { createSqsServer } from "local-aws-sqs";

// It takes no port 0: ask for a free one.
const port = await new Promise((resolve) => {
	const probe = createServer().listen(0, "127.0.0.1", () => {
		const { port } = probe.address();
		probe.close(() => resolve(port));
	});
});
await createSqsServer({ port, hostname: "127.0.0.1" });
console.log(`http://127.0.0.1:${port}`);
process.stdin.resume().on("end", () => process.exit());
