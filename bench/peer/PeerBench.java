import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The bench's workloads against Apache BookKeeper, one per process, each printing one line of JSON.
 *
 * <p>write ZK SIZE COUNT WINDOW RATE LEDGERS E QW QA CLOSE | read ZK LEDGER COUNT | recover ZK LEDGER
 *
 * <p>create ZK LEDGERS E QW QA | leave_open ZK LEDGERS ENTRIES E QW QA | recover_each ZK ID,ID,… ENTRIES
 * | hold_open ZK LEDGERS SECONDS E QW QA PID,PID,…: many ledgers, as bench/many.py has them.
 *
 * <p>A write warms the JVM up with a tenth of the work in a ledger of its own, and with a
 * first entry in each of many ledgers, which is not timed. CLOSE 0 leaves the
 * ledger open, as a writer that died does. RATE 0 sends as fast as WINDOW (entries under way) allows, and
 * counts an entry's latency from its sending; with a RATE it counts from when the entry was due.
 */
public class PeerBench {
  private static final byte[] PASSWORD = "bench".getBytes();
  private static final BookKeeper.DigestType DIGEST = BookKeeper.DigestType.CRC32C;
  private static final int READ_BATCH = 1000;
  private static final int READS_UNDER_WAY = 4;

  public static void main(String[] args) throws Exception {
    ClientConfiguration conf = new ClientConfiguration();
    conf.setMetadataServiceUri("zk+null://" + args[1] + "/ledgers");
    conf.setAddEntryTimeout(120);
    conf.setThrottleValue(0);
    try (BookKeeper bk = new BookKeeper(conf)) {
      switch (args[0]) {
        case "write" -> write(bk, Arrays.copyOfRange(args, 2, args.length));
        case "read" -> read(bk, Long.parseLong(args[2]), Integer.parseInt(args[3]));
        case "recover" -> recover(bk, Long.parseLong(args[2]));
        case "create" -> create(bk, Arrays.copyOfRange(args, 2, args.length));
        case "leave_open" -> leaveOpen(bk, Arrays.copyOfRange(args, 2, args.length));
        case "recover_each" -> recoverEach(bk, args[2].split(","), Integer.parseInt(args[3]));
        case "hold_open" -> holdOpen(bk, Arrays.copyOfRange(args, 2, args.length));
        default -> throw new IllegalArgumentException("unknown workload " + args[0]);
      }
    }
    System.exit(0);
  }

  private static void write(BookKeeper bk, String[] a) throws Exception {
    int size = Integer.parseInt(a[0]);
    int count = Integer.parseInt(a[1]);
    int window = Integer.parseInt(a[2]);
    int rate = Integer.parseInt(a[3]);
    int ledgers = Integer.parseInt(a[4]);
    int[] quorum = {Integer.parseInt(a[5]), Integer.parseInt(a[6]), Integer.parseInt(a[7])};
    boolean close = a[8].equals("1");
    LedgerHandle[] warm = {create(bk, quorum)};
    run(warm, size, Math.max(1000, count / 10), window, rate);
    warm[0].close();
    LedgerHandle[] handles = new LedgerHandle[ledgers];
    for (int i = 0; i < ledgers; i++) {
      handles[i] = create(bk, quorum);
    }
    if (ledgers > 1) {
      run(handles, size, ledgers, ledgers, 0);
    }
    long[] latencies = new long[count];
    double seconds = run(handles, size, count, window, rate, latencies);
    if (close) {
      for (LedgerHandle handle : handles) {
        handle.close();
      }
    }
    Arrays.sort(latencies);
    System.out.printf(
        "{\"ledger\": %d, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f}%n",
        handles[0].getId(),
        seconds,
        latencies[count / 2] / 1e6,
        latencies[(int) (count * 0.99)] / 1e6,
        latencies[(int) (count * 0.999)] / 1e6);
    if (!close) {
      Runtime.getRuntime().halt(0);
    }
  }

  private static LedgerHandle create(BookKeeper bk, int[] quorum) throws Exception {
    return bk.createLedger(quorum[0], quorum[1], quorum[2], DIGEST, PASSWORD);
  }

  private static double run(LedgerHandle[] handles, int size, int count, int window, int rate) throws Exception {
    return run(handles, size, count, window, rate, new long[count]);
  }

  private static double run(
      LedgerHandle[] handles, int size, int count, int window, int rate, long[] latencies) throws Exception {
    byte[] data = new byte[size];
    new Random(1).nextBytes(data);
    Semaphore room = new Semaphore(window);
    CountDownLatch done = new CountDownLatch(count);
    AtomicInteger errors = new AtomicInteger();
    long begin = System.nanoTime();
    for (int i = 0; i < count; i++) {
      long due = rate > 0 ? begin + (long) (i * 1e9 / rate) : 0;
      if (rate > 0) {
        awaitInstant(due);
      }
      room.acquire();
      int k = i;
      long countedFrom = rate > 0 ? due : System.nanoTime();
      handles[i % handles.length].asyncAddEntry(
          data,
          (rc, handle, entry, context) -> {
            if (rc != 0) {
              errors.incrementAndGet();
            }
            latencies[k] = System.nanoTime() - countedFrom;
            room.release();
            done.countDown();
          },
          null);
    }
    done.await();
    if (errors.get() > 0) {
      throw new IllegalStateException(errors.get() + " entries failed");
    }
    return (System.nanoTime() - begin) / 1e9;
  }

  private static void awaitInstant(long due) throws InterruptedException {
    for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
      if (left > 200_000) {
        Thread.sleep(0, 100_000);
      } else {
        Thread.onSpinWait();
      }
    }
  }

  private static void read(BookKeeper bk, long ledger, int count) throws Exception {
    LedgerHandle handle = bk.openLedger(ledger, DIGEST, PASSWORD);
    scan(handle, Math.min(count, Math.max(1000, count / 20)));
    long begin = System.nanoTime();
    long bytes = scan(handle, count);
    System.out.printf("{\"seconds\": %.6f, \"bytes\": %d}%n", (System.nanoTime() - begin) / 1e9, bytes);
  }

  private static long scan(LedgerHandle handle, int count) throws Exception {
    ArrayDeque<CompletableFuture<Long>> underWay = new ArrayDeque<>();
    long bytes = 0;
    for (int first = 0; first < count; first += READ_BATCH) {
      CompletableFuture<Long> batch = new CompletableFuture<>();
      handle.asyncReadEntries(
          first,
          Math.min(count, first + READ_BATCH) - 1,
          (rc, h, entries, context) -> {
            if (rc != 0) {
              batch.completeExceptionally(new IllegalStateException("read failed: " + rc));
            } else {
              batch.complete(size(entries));
            }
          },
          null);
      underWay.add(batch);
      if (underWay.size() > READS_UNDER_WAY) {
        bytes += underWay.poll().get();
      }
    }
    while (!underWay.isEmpty()) {
      bytes += underWay.poll().get();
    }
    return bytes;
  }

  private static long size(Enumeration<LedgerEntry> entries) {
    long bytes = 0;
    while (entries.hasMoreElements()) {
      bytes += entries.nextElement().getEntry().length;
    }
    return bytes;
  }

  private static void recover(BookKeeper bk, long ledger) throws Exception {
    long begin = System.nanoTime();
    LedgerHandle handle = bk.openLedger(ledger, DIGEST, PASSWORD);
    double seconds = (System.nanoTime() - begin) / 1e9;
    System.out.printf("{\"seconds\": %.6f, \"entries\": %d}%n", seconds, handle.getLastAddConfirmed() + 1);
  }

  private static int[] quorum(String[] a, int from) {
    return new int[] {Integer.parseInt(a[from]), Integer.parseInt(a[from + 1]), Integer.parseInt(a[from + 2])};
  }

  private static LedgerHandle[] createEach(BookKeeper bk, int count, int[] quorum) throws Exception {
    LedgerHandle[] handles = new LedgerHandle[count];
    CountDownLatch done = new CountDownLatch(count);
    AtomicInteger errors = new AtomicInteger();
    for (int i = 0; i < count; i++) {
      int k = i;
      bk.asyncCreateLedger(
          quorum[0],
          quorum[1],
          quorum[2],
          DIGEST,
          PASSWORD,
          (rc, handle, context) -> {
            if (rc != 0) {
              errors.incrementAndGet();
            }
            handles[k] = handle;
            done.countDown();
          },
          null,
          null);
    }
    done.await();
    if (errors.get() > 0) {
      throw new IllegalStateException(errors.get() + " ledgers were not created");
    }
    return handles;
  }

  private static void create(BookKeeper bk, String[] a) throws Exception {
    int count = Integer.parseInt(a[0]);
    createEach(bk, Math.max(1, count / 10), quorum(a, 1));
    long begin = System.nanoTime();
    LedgerHandle[] handles = createEach(bk, count, quorum(a, 1));
    double seconds = (System.nanoTime() - begin) / 1e9;
    run(handles, 5, count, count, 0);
    System.out.printf(
        "{\"seconds\": %.6f, \"first_entries_seconds\": %.6f}%n", seconds, (System.nanoTime() - begin) / 1e9);
    Runtime.getRuntime().halt(0);
  }

  private static void leaveOpen(BookKeeper bk, String[] a) throws Exception {
    LedgerHandle[] handles = createEach(bk, Integer.parseInt(a[0]), quorum(a, 2));
    run(handles, 100, handles.length * Integer.parseInt(a[1]), 5000, 0);
    StringBuilder ids = new StringBuilder();
    for (LedgerHandle handle : handles) {
      ids.append(ids.length() == 0 ? "" : ", ").append(handle.getId());
    }
    System.out.println("{\"ledgers\": [" + ids + "]}");
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private static void recoverEach(BookKeeper bk, String[] ids, int entries) throws Exception {
    CountDownLatch done = new CountDownLatch(ids.length);
    AtomicInteger errors = new AtomicInteger();
    long begin = System.nanoTime();
    for (String id : ids) {
      bk.asyncOpenLedger(
          Long.parseLong(id),
          DIGEST,
          PASSWORD,
          (rc, handle, context) -> {
            if (rc != 0 || handle.getLastAddConfirmed() != entries - 1) {
              errors.incrementAndGet();
            }
            done.countDown();
          },
          null);
    }
    done.await();
    double seconds = (System.nanoTime() - begin) / 1e9;
    if (errors.get() > 0) {
      throw new IllegalStateException(errors.get() + " ledgers were not recovered");
    }
    System.out.printf("{\"seconds\": %.6f}%n", seconds);
  }

  private static double cpuSeconds(long pid) {
    return ProcessHandle.of(pid).orElseThrow().info().totalCpuDuration().orElseThrow().toNanos() / 1e9;
  }

  private static void holdOpen(BookKeeper bk, String[] a) throws Exception {
    LedgerHandle[] handles = createEach(bk, Integer.parseInt(a[0]), quorum(a, 2));
    run(handles, 5, handles.length, handles.length, 0);
    Thread.sleep(5000);
    long[] pids = Arrays.stream((ProcessHandle.current().pid() + "," + a[5]).split(",")).mapToLong(Long::parseLong).toArray();
    double[] before = Arrays.stream(pids).mapToDouble(PeerBench::cpuSeconds).toArray();
    long begin = System.nanoTime();
    Thread.sleep(1000L * Integer.parseInt(a[1]));
    double passed = (System.nanoTime() - begin) / 1e9;
    double busiest = 0;
    for (int i = 1; i < pids.length; i++) {
      busiest = Math.max(busiest, 100 * (cpuSeconds(pids[i]) - before[i]) / passed);
    }
    System.out.printf(
        "{\"client_cpu_percent\": %.2f, \"bookie_cpu_percent\": %.2f}%n",
        100 * (cpuSeconds(pids[0]) - before[0]) / passed, busiest);
    Runtime.getRuntime().halt(0);
  }
}
