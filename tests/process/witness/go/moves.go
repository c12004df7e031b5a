package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	unloads         = 6
	receiptsBetween = 300
	subscribes      = 60
)

// Topics that move to another broker while clients use them, and clients that are sent to the wrong broker.
var moves = []witnessCase{
	{"unload", unload},
	{"subscribe during unloads", subscribeDuringUnloads},
	{"refused at first", refusedAtFirst},
}

func unload(k *kit) string {
	there := topic("unload")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := k.producer(there, pulsar.ProducerOptions{BatchingMaxPublishDelay: 2 * time.Millisecond})
	defer producer.Close()
	receipts, sent, deliveries := make(chan error, 1000), make(chan int, 1), make(chan any, 1)
	var isOver atomic.Bool
	var total atomic.Int64
	total.Store(-1)
	go func() { sent <- sendUntil(producer, &isOver, receipts) }()
	go func() {
		defer func() {
			if problem := recover(); problem != nil {
				deliveries <- problem
			}
		}()
		deliveries <- receiveAll(consumer, &total)
	}()
	for range unloads {
		for range receiptsBetween {
			must(<-receipts)
		}
		k.unload(there)
	}
	isOver.Store(true)
	go func() {
		for err := range receipts {
			must(err)
		}
	}()
	select {
	case count := <-sent:
		total.Store(int64(count))
	case <-time.After(limit):
		panic(failure("the producer has no receipts"))
	}
	arrived := <-deliveries
	count, ok := arrived.(int)
	check(ok, "%v", arrived)
	same(k.stored(there), numbersTo(0, int(total.Load())))
	return fmt.Sprintf("%d moves; %d messages stored once and in order; %d delivered again",
		unloads, total.Load(), count-int(total.Load()))
}

func sendUntil(producer pulsar.Producer, isOver *atomic.Bool, receipts chan error) int {
	count := 0
	for ; !isOver.Load(); count++ {
		message := &pulsar.ProducerMessage{Payload: payload(count)}
		answer := func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { receipts <- err }
		producer.SendAsync(context.Background(), message, answer)
	}
	must(producer.Flush())
	return count
}

// receiveAll receives until `total` is set and has arrived; how many messages came, again ones too.
func receiveAll(consumer pulsar.Consumer, total *atomic.Int64) int {
	seen := map[int]bool{}
	count, last := 0, -1
	for wanted := int64(-1); wanted < 0 || int64(len(seen)) < wanted; wanted = total.Load() {
		if message := soon(consumer); message != nil {
			found := number(message)
			count++
			check(seen[found] || found > last, "%d arrived first after %d", found, last)
			seen[found] = true
			last = max(last, found)
			ack(consumer, message)
		}
	}
	return count
}

// subscribeDuringUnloads has each subscription race with one unload.
func subscribeDuringUnloads(k *kit) string {
	there := topic("subscribe-during-unloads")
	k.publishTo(there, 0, 3)
	races, ended := make(chan bool, subscribes), make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		for range races {
			k.unload(there)
		}
	}()
	longest, refusals := time.Duration(0), 0
	for range subscribes {
		began := time.Now()
		races <- true
		consumer := again(&refusals, func() (pulsar.Consumer, error) {
			return k.trySubscribe(there, "s", pulsar.ConsumerOptions{})
		})
		same(numbers(receive(consumer, 3)), numbersTo(0, 3))
		consumer.Close()
		longest = max(longest, time.Since(began))
	}
	close(races)
	problem := <-ended
	check(problem == nil, "%v", problem)
	return fmt.Sprintf("%d subscriptions, each beside an unload, each received; %d refusals, which this client leaves to its user; at most %d ms",
		subscribes, refusals, longest.Milliseconds())
}

// again repeats what the broker refuses because the topic has moved: the client returns that to its user when it makes something new.
func again[T any](refusals *int, try func() (T, error)) T {
	began := time.Now()
	for {
		made, err := try()
		if err == nil {
			return made
		}
		check(strings.Contains(err.Error(), "look it up again") && time.Since(began) < limit, "%v", err)
		*refusals++
	}
}

func refusedAtFirst(k *kit) string {
	longest, refusals := time.Duration(0), 0
	for turn := range 5 {
		there := topic(fmt.Sprint("misled-", turn))
		k.publishTo(there, 0, 3)
		began := time.Now()
		misled(k, func(client *kit) {
			consumer := again(&refusals, func() (pulsar.Consumer, error) {
				return client.trySubscribe(there, "s", pulsar.ConsumerOptions{})
			})
			same(numbers(receive(consumer, 3)), numbersTo(0, 3))
			must(consumer.Unsubscribe())
		})
		misled(k, func(client *kit) {
			reader := again(&refusals, func() (pulsar.Reader, error) {
				return client.CreateReader(pulsar.ReaderOptions{Topic: there, StartMessageID: pulsar.EarliestMessageID()})
			})
			same(read(reader), 0)
			reader.Close()
		})
		misled(k, func(client *kit) {
			producer := again(&refusals, func() (pulsar.Producer, error) {
				return client.CreateProducer(pulsar.ProducerOptions{Topic: there})
			})
			publish(producer, 3, 4)
			producer.Close()
		})
		longest = max(longest, time.Since(began))
		same(k.stored(there), numbersTo(0, 4))
	}
	check(refusals > 0, "nothing was refused")
	return fmt.Sprintf("a consumer, a reader and a producer that are sent to the wrong broker, 5 times; %d refusals, which this client leaves to its user; at most %d ms for the three",
		refusals, longest.Milliseconds())
}

// misled runs `work` with a client that looks topics up at a server which names the wrong broker first.
func misled(k *kit, work func(*kit)) {
	client := newKit(k.lookups, k.admin, k.lookups)
	defer client.Close()
	work(client)
}
