// What the tests share: the endpoint comes from SQSUB_TEST_ENDPOINT.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { CreateQueueCommand, ReceiveMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

export { sleep };

export const sqs = new SQSClient({
	endpoint: process.env.SQSUB_TEST_ENDPOINT,
	region: "us-east-1",
	credentials: { accessKeyId: "key", secretAccessKey: "secret" },
});

// queue makes one, a FIFO queue if the kind says so, and returns its URL.
export async function queue(kind = "", attributes = {}) {
	const fifo = kind === ".fifo" ? { FifoQueue: "true", ContentBasedDeduplication: "true" } : {};
	const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: randomUUID() + kind, Attributes: { ...fifo, ...attributes } }));
	return QueueUrl;
}

// receive returns the messages of one receive, with all their attributes.
export async function receive(QueueUrl, options = {}) {
	const { Messages = [] } = await sqs.send(
		new ReceiveMessageCommand({ QueueUrl, MaxNumberOfMessages: 10, MessageSystemAttributeNames: ["All"], MessageAttributeNames: ["All"], ...options }),
	);
	return Messages;
}

export const bodies = (messages) => messages.map((m) => m.Body);
