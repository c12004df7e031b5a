import java.util.HashSet;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Topics that move to another broker while clients use them, and clients that are sent to the wrong broker. */
final class Moves {
    private static final int MOVES = 6;
    private static final int RECEIPTS_BETWEEN = 300;
    private static final int SUBSCRIPTIONS = 60;

    private Moves() {}

    static void cases(Map<String, Witness.Case> cases) {
        cases.put("unload", Moves::unload);
        cases.put("subscribe during unloads", Moves::subscribeDuringUnloads);
        cases.put("refused at first", Moves::refusedAtFirst);
    }

    private static String unload(Kit kit) throws Exception {
        var topic = Kit.topic("unload");
        var receipts = new AtomicInteger();
        var moved = new AtomicInteger();
        var threads = Executors.newFixedThreadPool(2);
        try (var consumer = kit.subscribe(topic, "s");
                var producer = kit.producer(topic, options -> options.batchingMaxPublishDelay(2, TimeUnit.MILLISECONDS))) {
            Future<Integer> sent = threads.submit(() -> sendUntil(producer, () -> moved.get() == MOVES, receipts));
            Future<Integer> arrived = threads.submit(() -> {
                var seen = new HashSet<Integer>();
                var count = 0;
                var last = -1;
                while (!sent.isDone() || seen.size() < sent.get()) {
                    var message = consumer.receive(100, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        count++;
                        var number = Kit.number(message);
                        Kit.check(!seen.add(number) || number > last, "%d arrived first after %d", number, last);
                        last = Math.max(last, number);
                        consumer.acknowledge(message);
                    }
                }
                return count;
            });
            while (moved.get() < MOVES) {
                var wanted = receipts.get() + RECEIPTS_BETWEEN;
                synchronized (receipts) {
                    while (receipts.get() < wanted) {
                        Kit.check(!sent.isDone(), "the producer has ended");
                        receipts.wait(1000);
                    }
                }
                kit.unload(topic);
                moved.incrementAndGet();
            }
            var total = sent.get(Kit.LIMIT_S, TimeUnit.SECONDS);
            var deliveries = arrived.get(Kit.LIMIT_S, TimeUnit.SECONDS);
            Kit.same(kit.stored(topic), Kit.range(0, total));
            return String.format(
                    "%d moves; %d messages stored once and in order; %d delivered again", MOVES, total, deliveries - total);
        } finally {
            threads.shutdownNow();
        }
    }

    private static int sendUntil(Producer<byte[]> producer, Callable<Boolean> isOver, AtomicInteger receipts) throws Exception {
        var number = 0;
        var last = producer.sendAsync(Kit.bytes(number));
        while (!isOver.call()) {
            number++;
            last = producer.sendAsync(Kit.bytes(number));
            last.thenRun(() -> {
                synchronized (receipts) {
                    receipts.incrementAndGet();
                    receipts.notifyAll();
                }
            });
            if (number % 100 == 0) {
                last.get(Kit.LIMIT_S, TimeUnit.SECONDS);
            }
        }
        producer.flush();
        last.get(Kit.LIMIT_S, TimeUnit.SECONDS);
        return number + 1;
    }

    private static String subscribeDuringUnloads(Kit kit) throws Exception {
        var topic = Kit.topic("subscribe-during-unloads");
        kit.publish(topic, 0, 3);
        var subscribed = new AtomicInteger();
        var threads = Executors.newSingleThreadExecutor();
        try {
            Future<Integer> unloads = threads.submit(() -> {
                var count = 0;
                while (subscribed.get() < SUBSCRIPTIONS) {
                    kit.unload(topic);
                    count++;
                }
                return count;
            });
            var longestMs = 0L;
            while (subscribed.get() < SUBSCRIPTIONS && !unloads.isDone()) {
                var began = System.nanoTime();
                try (var consumer = kit.subscribe(topic, "s")) {
                    Kit.same(Kit.numbers(Kit.receive(consumer, 3)), Kit.range(0, 3));
                }
                longestMs = Math.max(longestMs, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
                subscribed.incrementAndGet();
            }
            var count = unloads.get(Kit.LIMIT_S, TimeUnit.SECONDS);
            return String.format(
                    "%d subscriptions during %d unloads, each received; at most %,d ms", SUBSCRIPTIONS, count, longestMs);
        } finally {
            subscribed.set(SUBSCRIPTIONS);
            threads.shutdownNow();
        }
    }

    private static String refusedAtFirst(Kit kit) throws Exception {
        var longestMs = 0L;
        for (var number = 0; number < 5; number++) {
            var topic = Kit.topic("misled-" + number);
            kit.publish(topic, 0, 3);
            var began = System.nanoTime();
            try (var client = kit.misledClient();
                    var consumer = client.newConsumer()
                            .topic(topic)
                            .subscriptionName("s")
                            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                            .subscribe()) {
                Kit.same(Kit.numbers(Kit.receive(consumer, 3)), Kit.range(0, 3));
                consumer.unsubscribe();
            }
            try (var client = kit.misledClient();
                    var reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
                Kit.same(Kit.number(reader.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), 0);
            }
            try (var client = kit.misledClient(); var producer = client.newProducer().topic(topic).create()) {
                producer.send(Kit.bytes(3));
            }
            longestMs = Math.max(longestMs, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
            Kit.same(kit.stored(topic), Kit.range(0, 4));
        }
        return String.format(
                "a consumer, a reader and a producer that are sent to the wrong broker, 5 times; at most %,d ms for the three",
                longestMs);
    }
}
