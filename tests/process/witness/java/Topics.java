import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Many topics: partitions, patterns, lookups over HTTP. */
final class Topics {
    private static final int PARTITIONS = 3;
    private static final int COUNT = 900;
    private static final int KEYS = 11;

    private Topics() {}

    static void cases(Map<String, Witness.Case> cases) {
        cases.put("partitions", Topics::partitions);
        cases.put("pattern", Topics::pattern);
        cases.put("lookups over HTTP", Topics::overHttp);
    }

    private static String partitions(Kit kit) throws Exception {
        var topic = Kit.topic("partitions");
        kit.admin("PUT", topic.replace("://", "/") + "/partitions", Integer.toString(PARTITIONS));
        Kit.same(kit.client.getPartitionsForTopic(topic).get(Kit.LIMIT_S, TimeUnit.SECONDS).size(), PARTITIONS);
        try (var consumer = kit.subscribe(topic, "s");
                var producer = kit.producer(topic, options -> options)) {
            for (var number = 0; number < COUNT; number++) {
                producer.newMessage().key("key-" + number % KEYS).value(Kit.bytes(number)).sendAsync();
            }
            producer.flush();
            var homes = new HashMap<String, String>();
            var last = new HashMap<String, Integer>();
            for (var message : Kit.receive(consumer, COUNT)) {
                var home = homes.putIfAbsent(message.getKey(), message.getTopicName());
                Kit.check(home == null || home.equals(message.getTopicName()), "%s is on two partitions", message.getKey());
                var number = Kit.number(message);
                var before = last.put(message.getKey(), number);
                Kit.same(number, before == null ? number % KEYS : before + KEYS);
                consumer.acknowledge(message);
            }
            var used = new HashSet<>(homes.values());
            Kit.check(used.size() > 1, "all keys are on one partition");
            Kit.same(consumer.getLastMessageIds().size(), PARTITIONS);
            return String.format("%d keys on %d of %d partitions, each in order", KEYS, used.size(), PARTITIONS);
        }
    }

    private static String pattern(Kit kit) throws Exception {
        for (var name : Set.of("pattern-a", "pattern-b", "other")) {
            kit.publish(Kit.topic(name), 0, 10);
        }
        var names = Pattern.compile(Kit.topic("pattern-.*"));
        try (var consumer = kit.client
                .newConsumer()
                .topicsPattern(names)
                .subscriptionName("pattern")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
                .subscribe()) {
            var seen = new TreeSet<String>();
            for (var message : Kit.receive(consumer, 20)) {
                seen.add(message.getTopicName());
                consumer.acknowledge(message);
            }
            Kit.same(seen, new TreeSet<>(Set.of(Kit.topic("pattern-a"), Kit.topic("pattern-b"))));
            kit.publish(Kit.topic("pattern-late"), 0, 10);
            for (var message : Kit.receive(consumer, 10)) {
                Kit.same(message.getTopicName(), Kit.topic("pattern-late"));
            }
        }
        return "two topics of three, and one that was created later";
    }

    private static String overHttp(Kit kit) throws Exception {
        var topic = Kit.topic("over-http");
        kit.admin("PUT", topic.replace("://", "/") + "/partitions", Integer.toString(PARTITIONS));
        try (var client = kit.httpClient();
                var consumer = client.newConsumer().topicsPattern(Pattern.compile(topic + ".*")).subscriptionName("s").subscribe();
                var producer = client.newProducer().topic(topic).create()) {
            Kit.publish(producer, 0, 30);
            Kit.same(Kit.numbers(Kit.receive(consumer, 30)).stream().sorted().toList(), Kit.range(0, 30));
        }
        return "a producer on partitions and a pattern, with an http:// service URL";
    }
}
