// sqs-consumer, the usual consumer of JavaScript, on sqstest.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { SendMessageBatchCommand } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";
import { bodies, queue, receive, sleep, sqs } from "./endpoint.mjs";

const send = (QueueUrl, ...texts) =>
	sqs.send(
		new SendMessageBatchCommand({
			QueueUrl,
			Entries: texts.map((MessageBody, i) => ({ Id: String(i), MessageBody, ...(QueueUrl.endsWith(".fifo") ? { MessageGroupId: "g" } : {}) })),
		}),
	);

// consume makes a consumer that is not started. An error that is not expected fails the test.
function consume(queueUrl, options) {
	const consumer = Consumer.create({ queueUrl, sqs, waitTimeSeconds: 1, alwaysAcknowledge: true, suppressFifoWarning: true, ...options });
	consumer.errors = [];
	consumer.on("error", (err) => consumer.errors.push(err));
	return consumer;
}

async function stop(consumer) {
	const stopped = once(consumer, "stopped");
	consumer.stop();
	await stopped;
}

// count waits for n events and returns their first arguments.
function count(consumer, event, n) {
	const got = [];
	return new Promise((resolve) => {
		consumer.on(event, (message) => {
			if (got.push(message) === n) {
				resolve(got);
			}
		});
	});
}

// wantEmpty waits until what is hidden would have come back.
async function wantEmpty(QueueUrl) {
	assert.deepEqual(bodies(await receive(QueueUrl, { WaitTimeSeconds: 3 })), []);
}

test("sqs-consumer", { concurrency: true, timeout: 30_000 }, async (t) => {
	const tests = [];
	const it = (name, run) => tests.push(t.test(name, run));

	it("consumes a message and deletes it", async () => {
		const url = await queue("", { VisibilityTimeout: "1" });
		await send(url, "m");
		const consumer = consume(url, { handleMessage: async () => {} });
		const processed = count(consumer, "message_processed", 1);
		consumer.start();
		assert.deepEqual(bodies(await processed), ["m"]);
		await stop(consumer);
		assert.deepEqual(consumer.errors, []);
		await wantEmpty(url);
	});

	it("consumes batches, and what is sent while it polls", async () => {
		const url = await queue("", { VisibilityTimeout: "1" });
		await send(url, "1", "2", "3");
		const batches = [];
		const consumer = consume(url, { batchSize: 10, waitTimeSeconds: 10, handleMessageBatch: async (messages) => void batches.push(bodies(messages)) });
		const first = count(consumer, "message_processed", 3);
		consumer.start();
		await first;
		const second = count(consumer, "message_processed", 2);
		await sleep(300);
		const began = Date.now();
		await send(url, "4", "5");
		await second;
		assert.ok(Date.now() - began < 5000);
		assert.deepEqual(batches.flat(), ["1", "2", "3", "4", "5"]);
		assert.deepEqual(batches[0], ["1", "2", "3"]);
		consumer.stop({ abort: true });
		assert.deepEqual(consumer.errors, []);
		await wantEmpty(url);
	});

	it("keeps a message by its heartbeat", async () => {
		const url = await queue();
		await send(url, "slow");
		let runs = 0;
		const consumer = consume(url, {
			visibilityTimeout: 2,
			heartbeatInterval: 1,
			handleMessage: async () => {
				runs++;
				await sleep(6000);
			},
		});
		const received = count(consumer, "message_received", 1);
		const processed = count(consumer, "message_processed", 1);
		consumer.start();
		await received;
		const rival = receive(url, { WaitTimeSeconds: 5 });
		assert.deepEqual(bodies(await rival), []);
		await processed;
		await stop(consumer);
		assert.equal(runs, 1);
		assert.deepEqual(consumer.errors, []);
		await wantEmpty(url);
	});

	it("gets a message again at once that it releases", async () => {
		const url = await queue("", { VisibilityTimeout: "60" });
		await send(url, "m");
		const counts = [];
		const consumer = consume(url, {
			terminateVisibilityTimeout: true,
			messageSystemAttributeNames: ["ApproximateReceiveCount"],
			handleMessage: async (m) => {
				if (counts.push(m.Attributes.ApproximateReceiveCount) < 3) {
					throw new Error("not yet");
				}
			},
		});
		const failed = count(consumer, "processing_error", 2);
		const processed = count(consumer, "message_processed", 1);
		consumer.start();
		await Promise.all([failed, processed]);
		await stop(consumer);
		assert.deepEqual(counts, ["1", "2", "3"]);
		await wantEmpty(url);
	});

	it("finishes what is in flight when it is stopped", async () => {
		const url = await queue("", { VisibilityTimeout: "60" });
		await send(url, "1", "2", "3");
		const consumer = consume(url, { batchSize: 3, pollingCompleteWaitTimeMs: 5000, handleMessage: () => sleep(300) });
		let processed = 0;
		consumer.on("message_processed", () => processed++);
		const received = count(consumer, "message_received", 3);
		consumer.start();
		await received;
		await stop(consumer);
		assert.equal(processed, 3);
		await wantEmpty(url);
	});

	it("keeps the order of a group", async () => {
		const url = await queue(".fifo", { VisibilityTimeout: "60" });
		await send(url, "1", "2", "3", "4");
		const order = [];
		const consumer = consume(url, { handleMessage: async (m) => void order.push(m.Body) });
		const processed = count(consumer, "message_processed", 4);
		consumer.start();
		await processed;
		await stop(consumer);
		assert.deepEqual(order, ["1", "2", "3", "4"]);
		await wantEmpty(url);
	});

	it("tells that a queue is empty, or missing", async () => {
		const url = await queue();
		const consumer = consume(url, { handleMessage: async () => {} });
		const empty = once(consumer, "empty");
		consumer.start();
		await empty;
		await stop(consumer);
		assert.deepEqual(consumer.errors, []);

		const lost = consume(url + "x", { handleMessage: async () => {} });
		const error = once(lost, "error");
		lost.start();
		const [err] = await error;
		lost.stop({ abort: true });
		assert.equal(err.name, "SQSError");
		assert.equal(err.code, "QueueDoesNotExist");
	});

	await Promise.all(tests);
});
