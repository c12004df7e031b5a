import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionType;

/** Subscriptions and acknowledgements. */
final class Subscriptions {
    private static final int COUNT = 300;

    private Subscriptions() {}

    static void cases(Map<String, Witness.Case> cases) {
        cases.put("exclusive", Subscriptions::exclusive);
        cases.put("shared", Subscriptions::shared);
        cases.put("failover", Subscriptions::failover);
        cases.put("cumulative ack", Subscriptions::cumulative);
        cases.put("individual ack", Subscriptions::individual);
        cases.put("ack within batches", Subscriptions::withinBatches);
        cases.put("negative ack", Subscriptions::negative);
        cases.put("dead letters", Subscriptions::deadLetters);
        cases.put("unsubscribe", Subscriptions::unsubscribe);
        cases.put("non-durable", Subscriptions::nonDurable);
    }

    private static String exclusive(Kit kit) throws Exception {
        var topic = Kit.topic("exclusive");
        try (var consumer = kit.subscribe(topic, "s")) {
            try {
                kit.subscribe(topic, "s").close();
                throw new AssertionError("a second consumer was let in");
            } catch (PulsarClientException.ConsumerBusyException refused) {
                Kit.check(refused.getMessage() != null, "no reason is given");
            }
            kit.publish(topic, 0, COUNT);
            Kit.same(Kit.numbers(Kit.receive(consumer, COUNT)), Kit.range(0, COUNT));
        }
        return "all in order; a second consumer refused as busy";
    }

    private static String shared(Kit kit) throws Exception {
        var topic = Kit.topic("shared");
        try (var one = kit.subscribe(topic, "s", o -> o.subscriptionType(SubscriptionType.Shared).receiverQueueSize(10));
                var two = kit.subscribe(topic, "s", o -> o.subscriptionType(SubscriptionType.Shared).receiverQueueSize(10))) {
            kit.publish(topic, 0, COUNT);
            var all = new ArrayList<Integer>();
            var shares = new int[2];
            while (all.size() < COUNT) {
                for (var consumer : List.of(one, two)) {
                    Message<byte[]> message;
                    while (all.size() < COUNT && (message = consumer.receive(100, TimeUnit.MILLISECONDS)) != null) {
                        all.add(Kit.number(message));
                        shares[consumer == one ? 0 : 1]++;
                        consumer.acknowledge(message);
                    }
                }
            }
            Kit.same(all.stream().sorted().toList(), Kit.range(0, COUNT));
            Kit.check(shares[0] > 0 && shares[1] > 0, "one consumer received everything");
            return String.format("each once, %d and %d to two consumers", shares[0], shares[1]);
        }
    }

    private static String failover(Kit kit) throws Exception {
        var topic = Kit.topic("failover");
        var activated = new LinkedBlockingQueue<Consumer<?>>();
        var listener = new ConsumerEventListener() {
            @Override
            public void becameActive(Consumer<?> consumer, int partition) {
                activated.add(consumer);
            }

            @Override
            public void becameInactive(Consumer<?> consumer, int partition) {
                activated.remove(consumer);
            }
        };
        UnaryOperator<ConsumerBuilder<byte[]>> options =
                o -> o.subscriptionType(SubscriptionType.Failover).consumerEventListener(listener);
        try (var one = kit.subscribe(topic, "s", o -> options.apply(o).consumerName("a"));
                var two = kit.subscribe(topic, "s", o -> options.apply(o).consumerName("b"))) {
            kit.publish(topic, 0, COUNT);
            // the name of the topic decides who is active, perhaps only after the second one has come
            Consumer<byte[]> first = null;
            Message<byte[]> message = null;
            for (var turn = 0; message == null; turn++) {
                first = turn % 2 == 0 ? one : two;
                message = first.receive(100, TimeUnit.MILLISECONDS);
            }
            var half = new ArrayList<>(List.of(message));
            half.addAll(Kit.receive(first, COUNT / 2 - 1));
            Kit.same(Kit.numbers(half), Kit.range(0, COUNT / 2));
            first.acknowledgeCumulative(half.get(half.size() - 1));
            first.close();
            var second = first == one ? two : one;
            Consumer<?> active = null;
            while (active != second) {
                active = activated.poll(Kit.LIMIT_S, TimeUnit.SECONDS);
                Kit.check(active != null, "the second consumer did not become active");
            }
            Kit.same(Kit.numbers(Kit.receive(second, COUNT / 2)), Kit.range(COUNT / 2, COUNT));
        }
        return "one active consumer; the second one is notified and continues after its acknowledgement";
    }

    private static String cumulative(Kit kit) throws Exception {
        var topic = Kit.topic("cumulative");
        try (var consumer = kit.subscribe(topic, "s")) {
            kit.publish(topic, 0, COUNT);
            consumer.acknowledgeCumulative(Kit.receive(consumer, COUNT / 2).get(COUNT / 2 - 1));
        }
        try (var consumer = kit.subscribe(topic, "s")) {
            Kit.same(Kit.numbers(Kit.receive(consumer, COUNT / 2)), Kit.range(COUNT / 2, COUNT));
        }
        return "a consumer that comes back continues behind the acknowledged position";
    }

    private static String individual(Kit kit) throws Exception {
        var topic = Kit.topic("individual");
        try (var consumer = kit.subscribe(topic, "s", options -> options.isAckReceiptEnabled(true))) {
            kit.publish(topic, 0, COUNT);
            var answers = new ArrayList<CompletableFuture<Void>>();
            for (var message : Kit.receive(consumer, COUNT)) {
                if (Kit.number(message) % 2 == 0) {
                    answers.add(consumer.acknowledgeAsync(message));
                }
            }
            for (var answer : answers) {
                answer.get(Kit.LIMIT_S, TimeUnit.SECONDS);
            }
        }
        kit.unload(topic);
        kit.publish(topic, COUNT, COUNT + 1);
        try (var consumer = kit.subscribe(topic, "s")) {
            var expected = Kit.range(0, COUNT).stream().filter(number -> number % 2 == 1).toList();
            Kit.same(Kit.numbers(Kit.receive(consumer, COUNT / 2)), expected);
            Kit.same(Kit.number(Kit.next(consumer)), COUNT);
        }
        return "every second one, with answers; after an unload exactly the others arrive";
    }

    private static String withinBatches(Kit kit) throws Exception {
        var topic = Kit.topic("within-batches");
        try (var producer = kit.producer(topic, o -> o.batchingMaxPublishDelay(1, TimeUnit.SECONDS).batchingMaxMessages(10))) {
            try (var consumer = batchConsumer(kit, topic)) {
                Kit.publish(producer, 0, 100);
                for (var message : Kit.receive(consumer, 100)) {
                    if (Kit.number(message) % 3 != 0) {
                        consumer.acknowledgeAsync(message).get(Kit.LIMIT_S, TimeUnit.SECONDS);
                    }
                }
            }
            Kit.publish(producer, 100, 101);
        }
        try (var consumer = batchConsumer(kit, topic)) {
            var expected = Kit.range(0, 100).stream().filter(number -> number % 3 == 0).toList();
            Kit.same(Kit.numbers(Kit.receive(consumer, expected.size())), expected);
            Kit.same(Kit.number(Kit.next(consumer)), 100);
        }
        return "two of three messages of each batch; only the third ones arrive again";
    }

    private static Consumer<byte[]> batchConsumer(Kit kit, String topic) throws PulsarClientException {
        return kit.subscribe(topic, "s", options -> options.subscriptionType(SubscriptionType.Shared)
                .isAckReceiptEnabled(true)
                .enableBatchIndexAcknowledgment(true));
    }

    private static String negative(Kit kit) throws Exception {
        var topic = Kit.topic("negative");
        try (var consumer = kit.subscribe(topic, "s", options -> options.subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS))) {
            kit.publish(topic, 0, COUNT);
            for (var message : Kit.receive(consumer, COUNT)) {
                if (Kit.number(message) % 3 == 0) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            var again = Kit.receive(consumer, COUNT / 3);
            var expected = Kit.range(0, COUNT).stream().filter(number -> number % 3 == 0).toList();
            Kit.same(Kit.numbers(again).stream().sorted().toList(), expected);
            for (var message : again) {
                Kit.same(message.getRedeliveryCount(), 1);
                consumer.acknowledge(message);
            }
            kit.publish(topic, COUNT, COUNT + 1);
            Kit.same(Kit.number(Kit.next(consumer)), COUNT);
        }
        return "every third one; these arrive once more, with a redelivery count of 1";
    }

    private static String deadLetters(Kit kit) throws Exception {
        var topic = Kit.topic("dead-letters");
        var policy = DeadLetterPolicy.builder()
                .maxRedeliverCount(2)
                .deadLetterTopic(topic + "-dead")
                .initialSubscriptionName("kept")
                .build();
        try (var consumer = kit.subscribe(topic, "s", options -> options.subscriptionType(SubscriptionType.Shared)
                        .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS)
                        .deadLetterPolicy(policy));
                var dead = kit.subscribe(topic + "-dead", "dead")) {
            kit.publish(topic, 0, 2);
            var arrivals = 0;
            Message<byte[]> letter = null;
            while (letter == null) {
                var message = consumer.receive(100, TimeUnit.MILLISECONDS);
                if (message != null && Kit.number(message) == 0) {
                    arrivals++;
                    consumer.negativeAcknowledge(message);
                } else if (message != null) {
                    consumer.acknowledge(message);
                }
                letter = dead.receive(100, TimeUnit.MILLISECONDS);
            }
            Kit.same(Kit.number(letter), 0);
            Kit.same(arrivals, 3);
        }
        try (var late = kit.subscribe(topic + "-dead", "kept", options -> options.subscriptionInitialPosition(SubscriptionInitialPosition.Latest))) {
            Kit.same(Kit.number(Kit.next(late)), 0);
        }
        return "a message that is refused three times goes to the topic of dead letters, where the initial subscription keeps it";
    }

    private static String unsubscribe(Kit kit) throws Exception {
        var topic = Kit.topic("unsubscribe");
        kit.publish(topic, 0, 10);
        var path = topic.replace("://", "/") + "/subscriptions";
        try (var consumer = kit.subscribe(topic, "s")) {
            consumer.acknowledgeCumulative(Kit.receive(consumer, 10).get(9));
            Kit.same(kit.admin("GET", path, ""), "[\"s\"]");
            consumer.unsubscribe();
        }
        Kit.same(kit.admin("GET", path, ""), "[]");
        try (var consumer = kit.subscribe(topic, "s")) {
            Kit.same(Kit.numbers(Kit.receive(consumer, 10)), Kit.range(0, 10));
        }
        return "the subscription is gone from the admin API; a new one of its name begins anew";
    }

    private static String nonDurable(Kit kit) throws Exception {
        var topic = Kit.topic("non-durable");
        kit.publish(topic, 0, 10);
        for (var round = 0; round < 2; round++) {
            try (var consumer = kit.subscribe(topic, "n", options -> options.subscriptionMode(SubscriptionMode.NonDurable)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest))) {
                consumer.acknowledgeCumulative(Kit.receive(consumer, 10).get(9));
            }
        }
        Kit.same(kit.admin("GET", topic.replace("://", "/") + "/subscriptions", ""), "[]");
        return "from the earliest message, each time; nothing of the subscription stays";
    }
}
