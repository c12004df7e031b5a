import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs Pulsar's Java client against the brokers, case by case, and prints what it saw: one line of JSON for each case.
 *
 * <p>Arguments: the service URL, the admin URL, the URL of the lookups that name the wrong broker first, then the cases; all
 * if none is named. The exit code is 1 if a case failed.
 */
public final class Witness {
    static final int CASE_LIMIT_S = 180;

    /** One case; it returns what it saw, for people. */
    interface Case {
        String run(Kit kit) throws Exception;
    }

    private static Map<String, Case> cases() {
        var cases = new LinkedHashMap<String, Case>();
        Publishing.cases(cases);
        Subscriptions.cases(cases);
        Positions.cases(cases);
        Topics.cases(cases);
        Moves.cases(cases);
        return cases;
    }

    public static void main(String[] arguments) throws Exception {
        var wanted = List.of(arguments).subList(3, arguments.length);
        var failures = 0;
        try (var kit = new Kit(arguments[0], arguments[1], arguments[2])) {
            for (var each : cases().entrySet()) {
                if (wanted.isEmpty() || wanted.contains(each.getKey())) {
                    failures += see(each.getKey(), each.getValue(), kit) ? 0 : 1;
                }
            }
        }
        System.exit(failures == 0 ? 0 : 1);
    }

    private static boolean see(String name, Case work, Kit kit) {
        var began = System.nanoTime();
        var thread = Executors.newSingleThreadExecutor();
        String saw;
        boolean isGood = false;
        try {
            saw = thread.submit(() -> work.run(kit)).get(CASE_LIMIT_S, TimeUnit.SECONDS);
            isGood = true;
        } catch (ExecutionException error) {
            error.getCause().printStackTrace();
            saw = error.getCause().toString();
        } catch (TimeoutException error) {
            saw = "not finished after " + CASE_LIMIT_S + " s";
        } catch (InterruptedException error) {
            saw = "interrupted";
        } finally {
            thread.shutdownNow();
        }
        var ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
        System.out.printf("{\"case\": %s, \"good\": %b, \"ms\": %d, \"saw\": %s}%n", quoted(name), isGood, ms, quoted(saw));
        return isGood;
    }

    private static String quoted(String text) {
        var found = new StringBuilder("\"");
        for (var character : text.toCharArray()) {
            if (character == '"' || character == '\\') {
                found.append('\\').append(character);
            } else if (character < ' ') {
                found.append(String.format("\\u%04x", (int) character));
            } else {
                found.append(character);
            }
        }
        return found.append('"').toString();
    }
}
