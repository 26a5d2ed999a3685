// The AWS SDK for JavaScript on sqstest. The SDK checks the MD5 of all that it sends and receives.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as SQS from "@aws-sdk/client-sqs";
import { bodies, queue, receive, sleep, sqs } from "./endpoint.mjs";

const concurrency = { concurrency: true, timeout: 30_000 };

test("sdk", concurrency, async (t) => {
	const tests = [];
	const it = (name, run) => tests.push(t.test(name, run));

	it("hands out what was sent", async () => {
		const QueueUrl = await queue();
		const MessageAttributes = {
			text: { DataType: "String", StringValue: "ü" },
			number: { DataType: "Number.int", StringValue: "7" },
			bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 255]) },
		};
		const MessageBody = 'Grüße, 世界 <&> "\n';
		const sent = await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody, MessageAttributes }));
		const [m] = await receive(QueueUrl);
		assert.equal(m.Body, MessageBody);
		assert.equal(m.MessageId, sent.MessageId);
		assert.equal(m.MD5OfMessageAttributes, sent.MD5OfMessageAttributes);
		assert.deepEqual({ ...m.MessageAttributes }, MessageAttributes);
		assert.equal(m.Attributes.ApproximateReceiveCount, "1");
		assert.ok(Math.abs(Number(m.Attributes.SentTimestamp) - Date.now()) < 60_000);
	});

	it("knows queues by name, and tells their attributes", async () => {
		const QueueUrl = await queue("", { VisibilityTimeout: "7" });
		const QueueName = QueueUrl.split("/").pop();
		assert.equal((await sqs.send(new SQS.GetQueueUrlCommand({ QueueName }))).QueueUrl, QueueUrl);
		const { Attributes } = await sqs.send(new SQS.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
		assert.equal(Attributes.VisibilityTimeout, "7");
		assert.equal(Attributes.QueueArn.split(":").pop(), QueueName);
		const listed = [];
		for await (const page of SQS.paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix: QueueName })) {
			listed.push(...(page.QueueUrls ?? []));
		}
		assert.deepEqual(listed, [QueueUrl]);
	});

	it("answers errors with their types", async () => {
		const QueueUrl = await queue();
		await assert.rejects(receive(QueueUrl + "x"), SQS.QueueDoesNotExist);
		await assert.rejects(sqs.send(new SQS.GetQueueUrlCommand({ QueueName: "missing" })), SQS.QueueDoesNotExist);
		await assert.rejects(sqs.send(new SQS.DeleteMessageCommand({ QueueUrl, ReceiptHandle: "garbage" })), SQS.ReceiptHandleIsInvalid);
		await assert.rejects(sqs.send(new SQS.DeleteMessageBatchCommand({ QueueUrl, Entries: [] })), SQS.EmptyBatchRequest);
		await assert.rejects(receive(QueueUrl, { MaxNumberOfMessages: 11 }), (err) => {
			assert.equal(err.name, "InvalidParameterValue");
			assert.equal(err.$fault, "client");
			assert.equal(err.$metadata.httpStatusCode, 400);
			assert.ok(err.$metadata.requestId);
			return true;
		});
	});

	it("hides a message for its timeout, and counts receives", async () => {
		const QueueUrl = await queue();
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "m" }));
		const [first] = await receive(QueueUrl, { VisibilityTimeout: 1 });
		assert.deepEqual(await receive(QueueUrl), []);
		const began = Date.now();
		const [second] = await receive(QueueUrl, { WaitTimeSeconds: 10 });
		assert.ok(Date.now() - began < 3000);
		assert.equal(second.Attributes.ApproximateReceiveCount, "2");
		assert.notEqual(second.ReceiptHandle, first.ReceiptHandle);
		await sqs.send(new SQS.ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: second.ReceiptHandle, VisibilityTimeout: 0 }));
		const [third] = await receive(QueueUrl);
		await sqs.send(new SQS.DeleteMessageCommand({ QueueUrl, ReceiptHandle: third.ReceiptHandle }));
		await assert.rejects(
			sqs.send(new SQS.ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: third.ReceiptHandle, VisibilityTimeout: 1 })),
			/does not exist or is not available for visibility timeout change/,
		);
	});

	it("refuses to hide for more than twelve hours", async () => {
		const QueueUrl = await queue();
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "m" }));
		const [{ ReceiptHandle }] = await receive(QueueUrl);
		await sleep(1100);
		await assert.rejects(sqs.send(new SQS.ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 43200 })), /beyond the limit/);
		await sqs.send(new SQS.ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 43190 }));
	});

	it("wakes a long poll when a message is sent, or its delay is over", async () => {
		const QueueUrl = await queue();
		const poll = receive(QueueUrl, { WaitTimeSeconds: 20 });
		await sleep(300);
		const began = Date.now();
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "m" }));
		assert.deepEqual(bodies(await poll), ["m"]);
		assert.ok(Date.now() - began < 3000);
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "later", DelaySeconds: 1 }));
		assert.deepEqual(bodies(await receive(QueueUrl)), []);
		assert.deepEqual(bodies(await receive(QueueUrl, { WaitTimeSeconds: 20 })), ["later"]);
	});

	it("hands a message to a poll whose client has left", async () => {
		const QueueUrl = await queue();
		const abort = new AbortController();
		const poll = sqs.send(new SQS.ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 3, VisibilityTimeout: 1 }), { abortSignal: abort.signal });
		await sleep(300);
		abort.abort();
		await assert.rejects(poll, { name: "AbortError" });
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "m" }));
		assert.deepEqual(await receive(QueueUrl), []);
		const [m] = await receive(QueueUrl, { WaitTimeSeconds: 10 });
		assert.equal(m.Attributes.ApproximateReceiveCount, "2");
	});

	it("answers each entry of a batch", async () => {
		const QueueUrl = await queue();
		const Entries = ["a", "b", "c"].map((Id) => ({ Id, MessageBody: Id }));
		const sent = await sqs.send(new SQS.SendMessageBatchCommand({ QueueUrl, Entries }));
		assert.deepEqual(sent.Successful.map((e) => e.Id), ["a", "b", "c"]);
		const handles = (await receive(QueueUrl)).map((m) => m.ReceiptHandle);
		assert.equal(handles.length, 3);
		const entry = (ReceiptHandle, i) => ({ Id: String(i), ReceiptHandle });
		const changed = await sqs.send(
			new SQS.ChangeMessageVisibilityBatchCommand({ QueueUrl, Entries: [...handles, "garbage"].map(entry).map((e) => ({ ...e, VisibilityTimeout: 60 })) }),
		);
		assert.deepEqual(changed.Successful.map((e) => e.Id), ["0", "1", "2"]);
		assert.deepEqual(changed.Failed.map((e) => [e.Id, e.Code, e.SenderFault]), [["3", "ReceiptHandleIsInvalid", true]]);
		const deleted = await sqs.send(new SQS.DeleteMessageBatchCommand({ QueueUrl, Entries: handles.map(entry) }));
		assert.equal(deleted.Successful.length, 3);
		const { Attributes } = await sqs.send(new SQS.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
		assert.equal(Attributes.ApproximateNumberOfMessages, "0");
		assert.equal(Attributes.ApproximateNumberOfMessagesNotVisible, "0");
	});

	it("keeps the order of a group, and drops what is sent twice", async () => {
		const QueueUrl = await queue(".fifo");
		const numbers = [];
		for (const [MessageGroupId, MessageBody] of [["g", "1"], ["g", "2"], ["h", "3"], ["g", "1"]]) {
			numbers.push((await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageGroupId, MessageBody }))).SequenceNumber);
		}
		assert.ok(numbers[0] < numbers[1] && numbers[0] === numbers[3]);
		const got = await receive(QueueUrl, { MaxNumberOfMessages: 1 });
		assert.deepEqual(bodies(got), ["1"]);
		assert.equal(got[0].Attributes.MessageGroupId, "g");
		assert.equal(got[0].Attributes.SequenceNumber, numbers[0]);
		assert.deepEqual(bodies(await receive(QueueUrl)), ["3"]);
		await sqs.send(new SQS.DeleteMessageCommand({ QueueUrl, ReceiptHandle: got[0].ReceiptHandle }));
		assert.deepEqual(bodies(await receive(QueueUrl, { WaitTimeSeconds: 2 })), ["2"]);
	});

	it("repeats a receive by its attempt id", async () => {
		const QueueUrl = await queue(".fifo");
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageGroupId: "g", MessageBody: "m" }));
		const [first] = await receive(QueueUrl, { ReceiveRequestAttemptId: "a" });
		const [again] = await receive(QueueUrl, { ReceiveRequestAttemptId: "a" });
		assert.equal(again.ReceiptHandle, first.ReceiptHandle);
		assert.deepEqual(await receive(QueueUrl, { ReceiveRequestAttemptId: "b" }), []);
	});

	it("moves a message to its dead-letter queue", async () => {
		const dead = await queue();
		const { Attributes } = await sqs.send(new SQS.GetQueueAttributesCommand({ QueueUrl: dead, AttributeNames: ["QueueArn"] }));
		const QueueUrl = await queue("", { RedrivePolicy: JSON.stringify({ deadLetterTargetArn: Attributes.QueueArn, maxReceiveCount: 1 }) });
		const { queueUrls } = await sqs.send(new SQS.ListDeadLetterSourceQueuesCommand({ QueueUrl: dead }));
		assert.deepEqual(queueUrls, [QueueUrl]);
		const { MessageId } = await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "m" }));
		await receive(QueueUrl, { VisibilityTimeout: 1 });
		assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 2 }), []);
		const [m] = await receive(dead);
		assert.equal(m.MessageId, MessageId);
	});

	it("purges, tags and deletes queues", async () => {
		const QueueUrl = await queue();
		await sqs.send(new SQS.SendMessageCommand({ QueueUrl, MessageBody: "m" }));
		await sqs.send(new SQS.PurgeQueueCommand({ QueueUrl }));
		assert.deepEqual(await receive(QueueUrl), []);
		await sqs.send(new SQS.TagQueueCommand({ QueueUrl, Tags: { team: "a" } }));
		assert.deepEqual({ ...(await sqs.send(new SQS.ListQueueTagsCommand({ QueueUrl }))).Tags }, { team: "a" });
		await sqs.send(new SQS.DeleteQueueCommand({ QueueUrl }));
		await assert.rejects(receive(QueueUrl), SQS.QueueDoesNotExist);
	});

	await Promise.all(tests);
});
