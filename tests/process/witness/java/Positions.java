import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;

/** Positions in a topic: seek, readers, the last message. */
final class Positions {
    private static final int COUNT = 200;

    private Positions() {}

    static void cases(Map<String, Witness.Case> cases) {
        cases.put("seek by id", Positions::seekById);
        cases.put("seek by time", Positions::seekByTime);
        cases.put("reader", Positions::reader);
        cases.put("last message id", Positions::lastMessageId);
    }

    private static String seekById(Kit kit) throws Exception {
        var topic = Kit.topic("seek-by-id");
        try (var consumer = kit.subscribe(topic, "s")) {
            var ids = kit.publish(topic, 0, COUNT);
            consumer.acknowledgeCumulative(Kit.receive(consumer, COUNT).get(COUNT - 1));
            consumer.seek(ids.get(COUNT / 2));
            Kit.same(Kit.number(Kit.next(consumer)), COUNT / 2 + 1);
            consumer.seek(MessageId.earliest);
            Kit.same(Kit.numbers(Kit.receive(consumer, 5)), Kit.range(0, 5));
            consumer.seek(MessageId.latest);
            kit.publish(topic, COUNT, COUNT + 1);
            Kit.same(Kit.number(Kit.next(consumer)), COUNT);
        }
        try (var consumer = kit.subscribe(topic, "inclusive", options -> options.startMessageIdInclusive())) {
            var ids = kit.publish(topic, COUNT + 1, COUNT + 3);
            consumer.seek(ids.get(0));
            Kit.same(Kit.numbers(Kit.receive(consumer, 2)), Kit.range(COUNT + 1, COUNT + 3));
        }
        return "back to a message, to the first one, to the end; behind the id, or at it where the client asks for that";
    }

    private static String seekByTime(Kit kit) throws Exception {
        var topic = Kit.topic("seek-by-time");
        try (var consumer = kit.subscribe(topic, "s")) {
            kit.publish(topic, 0, COUNT / 2);
            var messages = Kit.receive(consumer, COUNT / 2);
            var end = messages.get(messages.size() - 1).getPublishTime();
            while (System.currentTimeMillis() <= end) {
                Thread.onSpinWait();
            }
            var middle = System.currentTimeMillis();
            kit.publish(topic, COUNT / 2, COUNT);
            consumer.acknowledgeCumulative(Kit.receive(consumer, COUNT / 2).get(COUNT / 2 - 1));
            consumer.seek(middle);
            Kit.same(Kit.number(Kit.next(consumer)), COUNT / 2);
            consumer.seek(messages.get(0).getPublishTime() - 60_000);
            Kit.same(Kit.number(Kit.next(consumer)), 0);
        }
        return "to the first message that is as late as that";
    }

    private static String reader(Kit kit) throws Exception {
        var topic = Kit.topic("reader");
        var ids = kit.publish(topic, 0, COUNT);
        Kit.same(kit.stored(topic), Kit.range(0, COUNT));
        var from = ids.get(COUNT - 10);
        try (var behind = kit.client.newReader().topic(topic).startMessageId(from).create();
                var at = kit.client.newReader().topic(topic).startMessageId(from).startMessageIdInclusive().create();
                var latest = kit.client.newReader().topic(topic).startMessageId(MessageId.latest).create();
                var last = kit.client.newReader().topic(topic).startMessageId(MessageId.latest)
                        .startMessageIdInclusive().create()) {
            Kit.same(Kit.number(behind.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), COUNT - 9);
            Kit.same(Kit.number(at.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), COUNT - 10);
            Kit.check(last.hasMessageAvailable(), "a reader at the last message does not see it");
            Kit.same(Kit.number(last.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), COUNT - 1);
            Kit.check(!latest.hasMessageAvailable(), "a reader at the end has messages");
            kit.publish(topic, COUNT, COUNT + 1);
            Kit.check(latest.hasMessageAvailable(), "a reader does not see what was published behind it");
            Kit.same(Kit.number(latest.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), COUNT);
            behind.seek(MessageId.earliest);
            Kit.same(Kit.number(behind.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), 0);
        }
        try (var recent = kit.client.newReader().topic(topic).startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()) {
            Kit.same(Kit.number(recent.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), 0);
        }
        return "from the first, behind or at an id, at the last, at the end, from an hour ago; whether there is more";
    }

    private static String lastMessageId(Kit kit) throws Exception {
        var topic = Kit.topic("last-message-id");
        try (var consumer = kit.subscribe(topic, "s");
                var batches = kit.producer(topic, options -> options.batchingMaxPublishDelay(1, TimeUnit.SECONDS))) {
            Kit.same(((MessageIdAdv) consumer.getLastMessageIds().get(0)).getEntryId(), -1L);
            var ids = kit.publish(topic, 0, 10);
            Kit.same(consumer.getLastMessageIds().get(0).compareTo(ids.get(9)), 0);
            ids = Kit.publish(batches, 10, 20);
            var last = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            Kit.same(last.compareTo(ids.get(9)), 0);
            Kit.same(last.getBatchIndex(), 9);
        }
        return "none in an empty topic; a message; the last one within a batch";
    }
}
