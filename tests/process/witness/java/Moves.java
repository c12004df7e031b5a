import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
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

    /** Each subscription races with one unload. */
    private static String subscribeDuringUnloads(Kit kit) throws Exception {
        var topic = Kit.topic("subscribe-during-unloads");
        kit.publish(topic, 0, 3);
        var races = new Semaphore(0);
        var threads = Executors.newSingleThreadExecutor();
        try {
            Future<Boolean> unloads = threads.submit(() -> {
                for (var race = 0; race < SUBSCRIPTIONS; race++) {
                    races.acquire();
                    kit.unload(topic);
                }
                return true;
            });
            var longestMs = 0L;
            for (var race = 0; race < SUBSCRIPTIONS; race++) {
                var began = System.nanoTime();
                races.release();
                try (var consumer = kit.subscribe(topic, "s")) {
                    Kit.same(Kit.numbers(Kit.receive(consumer, 3)), Kit.range(0, 3));
                }
                longestMs = Math.max(longestMs, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
            }
            unloads.get(Kit.LIMIT_S, TimeUnit.SECONDS);
            return String.format("%d subscriptions, each beside an unload, each received; at most %,d ms", SUBSCRIPTIONS, longestMs);
        } finally {
            threads.shutdownNow();
        }
    }

    private static String refusedAtFirst(Kit kit) throws Exception {
        var longestMs = 0L;
        for (var turn = 0; turn < 5; turn++) {
            var topic = Kit.topic("misled-" + turn);
            kit.publish(topic, 0, 3);
            for (var use : List.<Use>of(Moves::consume, Moves::read, Moves::produce)) {
                try (var client = kit.misledClient()) {
                    var began = System.nanoTime();
                    use.of(client, topic);
                    longestMs = Math.max(longestMs, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
                }
            }
            Kit.same(kit.stored(topic), Kit.range(0, 4));
        }
        return String.format(
                "a consumer, a reader and a producer that are sent to the wrong broker, 5 times; each at most %,d ms", longestMs);
    }

    private interface Use {
        void of(PulsarClient client, String topic) throws Exception;
    }

    private static void consume(PulsarClient client, String topic) throws Exception {
        try (var consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            Kit.same(Kit.numbers(Kit.receive(consumer, 3)), Kit.range(0, 3));
            consumer.unsubscribe();
        }
    }

    private static void read(PulsarClient client, String topic) throws Exception {
        try (var reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            Kit.same(Kit.number(reader.readNext(Kit.LIMIT_S, TimeUnit.SECONDS)), 0);
        }
    }

    private static void produce(PulsarClient client, String topic) throws Exception {
        try (var producer = client.newProducer().topic(topic).create()) {
            producer.send(Kit.bytes(3));
        }
    }
}
