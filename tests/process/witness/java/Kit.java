import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What the cases share: a client of the brokers, topics of their own, and checks that report what was found. */
final class Kit implements AutoCloseable {
    static final int LIMIT_S = 60;
    static final String NAMESPACE = "witness/java";

    final PulsarClient client;
    private final String admin;
    private final String lookups;
    private final HttpClient http =
            HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();

    Kit(String service, String admin, String lookups) throws PulsarClientException {
        this.admin = admin;
        this.lookups = lookups;
        this.client = client(service);
    }

    static PulsarClient client(String service) throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(service).operationTimeout(LIMIT_S, TimeUnit.SECONDS).build();
    }

    /** A client that looks topics up over HTTP, at a server that names the wrong broker first. */
    PulsarClient misledClient() throws PulsarClientException {
        return client(lookups);
    }

    /** A client that looks topics up over HTTP, at a broker. */
    PulsarClient httpClient() throws PulsarClientException {
        return client(admin);
    }

    @Override
    public void close() throws PulsarClientException {
        client.close();
    }

    static String topic(String name) {
        return "persistent://" + NAMESPACE + "/" + name;
    }

    static void check(boolean holds, String text, Object... values) {
        if (!holds) {
            throw new AssertionError(String.format(text, values));
        }
    }

    static void same(Object found, Object expected) {
        check(found.equals(expected), "found %s, expected %s", shortened(found), shortened(expected));
    }

    private static String shortened(Object value) {
        String text = value.toString();
        return text.length() <= 300 ? text : text.substring(0, 300) + "…";
    }

    // Publishing

    Producer<byte[]> producer(String topic, UnaryOperator<ProducerBuilder<byte[]>> options) throws PulsarClientException {
        return options.apply(client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).blockIfQueueFull(true))
                .create();
    }

    /** Publish the numbers from `first` to before `end`; their ids in the same order. */
    static List<MessageId> publish(Producer<byte[]> producer, int first, int end) throws Exception {
        var answers = IntStream.range(first, end)
                .mapToObj(number -> producer.sendAsync(bytes(number)))
                .toList();
        producer.flush();
        var ids = new ArrayList<MessageId>();
        for (var answer : answers) {
            ids.add(answer.get(LIMIT_S, TimeUnit.SECONDS));
        }
        return ids;
    }

    /** Publish to a topic with a producer of its own, without batches. */
    List<MessageId> publish(String topic, int first, int end) throws Exception {
        try (var producer = producer(topic, options -> options.enableBatching(false))) {
            return publish(producer, first, end);
        }
    }

    static byte[] bytes(int number) {
        return Integer.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    static int number(Message<byte[]> message) {
        return Integer.parseInt(new String(message.getData(), StandardCharsets.UTF_8));
    }

    static List<Integer> range(int first, int end) {
        return IntStream.range(first, end).boxed().collect(Collectors.toList());
    }

    // Receiving

    Consumer<byte[]> subscribe(String topic, String name, UnaryOperator<ConsumerBuilder<byte[]>> options)
            throws PulsarClientException {
        return options.apply(client.newConsumer()
                        .topic(topic)
                        .subscriptionName(name)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest))
                .subscribe();
    }

    Consumer<byte[]> subscribe(String topic, String name) throws PulsarClientException {
        return subscribe(topic, name, options -> options);
    }

    static Message<byte[]> next(Consumer<byte[]> consumer) throws PulsarClientException {
        var message = consumer.receive(LIMIT_S, TimeUnit.SECONDS);
        check(message != null, "no message arrived at %s within %d s", consumer.getSubscription(), LIMIT_S);
        return message;
    }

    static List<Message<byte[]>> receive(Consumer<byte[]> consumer, int count) throws PulsarClientException {
        var found = new ArrayList<Message<byte[]>>();
        while (found.size() < count) {
            found.add(next(consumer));
        }
        return found;
    }

    static List<Integer> numbers(List<Message<byte[]>> messages) {
        return messages.stream().map(Kit::number).toList();
    }

    /** Everything that a topic holds, by a reader. */
    List<Integer> stored(String topic) throws Exception {
        var found = new ArrayList<Integer>();
        try (var reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                var message = reader.readNext(LIMIT_S, TimeUnit.SECONDS);
                check(message != null, "the reader of %s receives nothing, although there is more", topic);
                found.add(number(message));
            }
        }
        return found;
    }

    // Admin

    String admin(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(admin + "/admin/v2/" + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        var answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() < 300, "%s %s: %d %s", method, path, answer.statusCode(), answer.body());
        return answer.body();
    }

    void unload(String topic) throws Exception {
        admin("PUT", topic.replace("://", "/") + "/unload", "");
    }
}
