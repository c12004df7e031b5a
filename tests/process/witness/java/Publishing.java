import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClientException;

/** Producers: batches, keys, compression, chunks, access modes. */
final class Publishing {
    private static final int COUNT = 2000;
    private static final int KEYS = 7;
    private static final int LARGE_BYTES = 12 * 1024 * 1024;

    private Publishing() {}

    static void cases(Map<String, Witness.Case> cases) {
        cases.put("batches and keys", Publishing::batchesAndKeys);
        cases.put("without batches", Publishing::withoutBatches);
        cases.put("compression", Publishing::compression);
        cases.put("chunks", Publishing::chunks);
        cases.put("access modes", Publishing::accessModes);
    }

    private static String batchesAndKeys(Kit kit) throws Exception {
        var seen = new StringBuilder();
        for (var builder : List.of(BatcherBuilder.DEFAULT, BatcherBuilder.KEY_BASED)) {
            var topic = Kit.topic("batches-" + (builder == BatcherBuilder.DEFAULT ? "default" : "by-key"));
            try (var consumer = kit.subscribe(topic, "s");
                    var producer = kit.producer(topic, options -> options.batcherBuilder(builder)
                            .batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS))) {
                for (var number = 0; number < COUNT; number++) {
                    producer.newMessage()
                            .key("key-" + number % KEYS)
                            .property("number", Integer.toString(number))
                            .eventTime(1 + number)
                            .value(Kit.bytes(number))
                            .sendAsync();
                }
                producer.flush();
                var entries = new HashSet<Long>();
                var last = new HashMap<String, Integer>();
                for (var message : Kit.receive(consumer, COUNT)) {
                    var number = Kit.number(message);
                    Kit.same(message.getKey(), "key-" + number % KEYS);
                    Kit.same(message.getProperty("number"), Integer.toString(number));
                    Kit.same(message.getEventTime(), (long) (1 + number));
                    var before = last.put(message.getKey(), number);
                    Kit.same(number, before == null ? number % KEYS : before + KEYS);
                    entries.add(((MessageIdAdv) message.getMessageId()).getEntryId());
                    consumer.acknowledge(message);
                }
                Kit.check(entries.size() < COUNT / 2, "%d entries are no batches", entries.size());
                seen.append(String.format("%d messages in %d entries; ", COUNT, entries.size()));
            }
        }
        return seen + "keys, properties, times and order kept";
    }

    private static String withoutBatches(Kit kit) throws Exception {
        var topic = Kit.topic("without-batches");
        try (var consumer = kit.subscribe(topic, "s")) {
            var ids = kit.publish(topic, 0, COUNT);
            var messages = Kit.receive(consumer, COUNT);
            Kit.same(Kit.numbers(messages), Kit.range(0, COUNT));
            Kit.same(messages.stream().map(each -> each.getMessageId()).toList(), ids);
        }
        return COUNT + " messages in order, with the ids of their receipts";
    }

    private static String compression(Kit kit) throws Exception {
        var types = List.of(CompressionType.LZ4, CompressionType.ZSTD, CompressionType.ZLIB, CompressionType.SNAPPY);
        for (var type : types) {
            for (var batches : List.of(true, false)) {
                var topic = Kit.topic("compression-" + type + "-" + batches);
                try (var consumer = kit.subscribe(topic, "s");
                        var producer = kit.producer(
                                topic, options -> options.compressionType(type).enableBatching(batches))) {
                    Kit.publish(producer, 0, 200);
                    producer.send("x".repeat(100_000).getBytes());
                    Kit.same(Kit.numbers(Kit.receive(consumer, 200)), Kit.range(0, 200));
                    Kit.same(Kit.next(consumer).getData().length, 100_000);
                }
            }
        }
        return types + ", each with batches and without";
    }

    private static String chunks(Kit kit) throws Exception {
        var topic = Kit.topic("chunks");
        var large = new byte[LARGE_BYTES];
        new Random(1).nextBytes(large);
        try (var consumer = kit.subscribe(topic, "s");
                var producer = kit.producer(topic, options -> options.enableBatching(false).enableChunking(true))) {
            producer.send(Kit.bytes(0));
            producer.send(large);
            producer.send(Kit.bytes(2));
            Kit.same(Kit.number(Kit.next(consumer)), 0);
            var message = Kit.next(consumer);
            Kit.check(Arrays.equals(message.getData(), large), "%d bytes arrived, changed", message.getData().length);
            consumer.acknowledge(message);
            Kit.same(Kit.number(Kit.next(consumer)), 2);
        }
        return String.format("a message of %d MiB between two small ones, unchanged", LARGE_BYTES >> 20);
    }

    private static String accessModes(Kit kit) throws Exception {
        var topic = Kit.topic("access-modes");
        var owner = kit.producer(topic, options -> options.accessMode(ProducerAccessMode.Exclusive));
        try {
            kit.producer(topic, options -> options).close();
            throw new AssertionError("a second producer was let in beside an exclusive one");
        } catch (PulsarClientException.ProducerFencedException | PulsarClientException.ProducerBusyException refused) {
            Kit.check(refused.getMessage() != null, "no reason is given");
        }
        var waiting = kit.client
                .newProducer()
                .topic(topic)
                .accessMode(ProducerAccessMode.WaitForExclusive)
                .createAsync();
        Kit.check(!waiting.isDone(), "the second exclusive producer does not wait");
        owner.send(Kit.bytes(0));
        owner.close();
        try (var next = waiting.get(Kit.LIMIT_S, TimeUnit.SECONDS)) {
            next.send(Kit.bytes(1));
        }
        Kit.same(kit.stored(topic), Kit.range(0, 2));
        return "a second producer refused, and one that waits let in after the first has closed";
    }
}
