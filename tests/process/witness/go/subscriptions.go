package main

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const subscribed = 300

// Subscriptions and acknowledgements.
var subscriptions = []witnessCase{
	{"exclusive", exclusive},
	{"shared", shared},
	{"failover", failover},
	{"cumulative ack", cumulative},
	{"individual ack", individual},
	{"ack within batches", withinBatches},
	{"negative ack", negative},
	{"dead letters", deadLetters},
	{"unsubscribe", unsubscribe},
	{"non-durable", nonDurable},
}

func exclusive(k *kit) string {
	there := topic("exclusive")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	_, err := k.trySubscribe(there, "s", pulsar.ConsumerOptions{})
	check(err != nil, "a second consumer was let in")
	k.publishTo(there, 0, subscribed)
	same(numbers(receive(consumer, subscribed)), numbersTo(0, subscribed))
	return fmt.Sprintf("all in order; a second consumer refused: %.60s…", err)
}

func shared(k *kit) string {
	there := topic("shared")
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: 10}
	consumers := []pulsar.Consumer{k.subscribe(there, "s", options), k.subscribe(there, "s", options)}
	k.publishTo(there, 0, subscribed)
	all, shares := []int{}, []int{0, 0}
	for len(all) < subscribed {
		for i, consumer := range consumers {
			for message := soon(consumer); message != nil; message = soon(consumer) {
				all = append(all, number(message))
				shares[i]++
				ack(consumer, message)
			}
		}
	}
	same(sorted(all), numbersTo(0, subscribed))
	check(shares[0] > 0 && shares[1] > 0, "one consumer received everything")
	consumers[0].Close()
	consumers[1].Close()
	return fmt.Sprintf("each once, %d and %d to two consumers", shares[0], shares[1])
}

type activity struct{ active chan string }

func (a activity) BecameActive(consumer pulsar.Consumer, _ string, _ int32) {
	a.active <- consumer.Name()
}
func (a activity) BecameInactive(pulsar.Consumer, string, int32) {}

func failover(k *kit) string {
	there := topic("failover")
	listener := activity{make(chan string, 10)}
	options := pulsar.ConsumerOptions{Type: pulsar.Failover, EventListener: listener}
	consumers := []pulsar.Consumer{}
	for _, options.Name = range []string{"a", "b"} {
		consumers = append(consumers, k.subscribe(there, "s", options))
	}
	k.publishTo(there, 0, subscribed)
	// the name of the topic decides who is active, perhaps only after the second one has come
	var message pulsar.Message
	turn := 0
	for ; message == nil; turn++ {
		message = soon(consumers[turn%2])
	}
	first, second := consumers[(turn-1)%2], consumers[turn%2]
	defer second.Close()
	half := append([]pulsar.Message{message}, receive(first, subscribed/2-1)...)
	same(numbers(half), numbersTo(0, subscribed/2))
	must(first.AckCumulative(half[len(half)-1]))
	first.Close()
	for name := ""; name != second.Name(); {
		select {
		case name = <-listener.active:
		case <-time.After(limit):
			panic(failure("the second consumer did not become active"))
		}
	}
	same(numbers(receive(second, subscribed/2)), numbersTo(subscribed/2, subscribed))
	return "one active consumer; the second one is notified and continues after its acknowledgement"
}

func cumulative(k *kit) string {
	there := topic("cumulative")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	k.publishTo(there, 0, subscribed)
	must(consumer.AckCumulative(receive(consumer, subscribed/2)[subscribed/2-1]))
	consumer.Close()
	consumer = k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	same(numbers(receive(consumer, subscribed/2)), numbersTo(subscribed/2, subscribed))
	return "a consumer that comes back continues behind the acknowledged position"
}

func every(step, offset, end int) []int {
	found := []int{}
	for each := offset; each < end; each += step {
		found = append(found, each)
	}
	return found
}

func individual(k *kit) string {
	there := topic("individual")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{AckWithResponse: true})
	k.publishTo(there, 0, subscribed)
	for _, message := range receive(consumer, subscribed) {
		if number(message)%2 == 0 {
			ack(consumer, message)
		}
	}
	consumer.Close()
	k.unload(there)
	k.publishTo(there, subscribed, subscribed+1)
	consumer = k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	same(numbers(receive(consumer, subscribed/2)), every(2, 1, subscribed))
	same(number(next(consumer)), subscribed)
	return "every second one, with answers; after an unload exactly the others arrive"
}

func withinBatches(k *kit) string {
	there := topic("within-batches")
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, AckWithResponse: true, EnableBatchIndexAcknowledgment: true}
	producer := k.producer(there, pulsar.ProducerOptions{BatchingMaxPublishDelay: time.Second, BatchingMaxMessages: 10})
	defer producer.Close()
	consumer := k.subscribe(there, "s", options)
	publish(producer, 0, 100)
	for _, message := range receive(consumer, 100) {
		if number(message)%3 != 0 {
			ack(consumer, message)
		}
	}
	consumer.Close()
	publish(producer, 100, 101)
	consumer = k.subscribe(there, "s", options)
	defer consumer.Close()
	expected := every(3, 0, 100)
	same(numbers(receive(consumer, len(expected))), expected)
	same(number(next(consumer)), 100)
	return "two of three messages of each batch; only the third ones arrive again"
}

func negative(k *kit) string {
	there := topic("negative")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{
		Type: pulsar.Shared, NackRedeliveryDelay: 100 * time.Millisecond,
	})
	defer consumer.Close()
	k.publishTo(there, 0, subscribed)
	for _, message := range receive(consumer, subscribed) {
		if number(message)%3 == 0 {
			consumer.Nack(message)
		} else {
			ack(consumer, message)
		}
	}
	again := receive(consumer, subscribed/3)
	same(sorted(numbers(again)), every(3, 0, subscribed))
	for _, message := range again {
		same(message.RedeliveryCount(), uint32(1))
		ack(consumer, message)
	}
	k.publishTo(there, subscribed, subscribed+1)
	same(number(next(consumer)), subscribed)
	return "every third one; these arrive once more, with a redelivery count of 1"
}

func deadLetters(k *kit) string {
	there := topic("dead-letters")
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{
		Type:                pulsar.Shared,
		NackRedeliveryDelay: 50 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{
			MaxDeliveries:           3,
			DeadLetterTopic:         there + "-dead",
			InitialSubscriptionName: "kept",
		},
	})
	defer consumer.Close()
	dead := k.subscribe(there+"-dead", "dead", pulsar.ConsumerOptions{})
	defer dead.Close()
	k.publishTo(there, 0, 2)
	arrivals := 0
	letter := pulsar.Message(nil)
	for letter == nil {
		if message := soon(consumer); message != nil && number(message) == 0 {
			arrivals++
			consumer.Nack(message)
		} else if message != nil {
			ack(consumer, message)
		}
		letter = soon(dead)
	}
	same(number(letter), 0)
	same(arrivals, 3)
	late, err := k.Subscribe(pulsar.ConsumerOptions{Topic: there + "-dead", SubscriptionName: "kept"}) // at the latest
	must(err)
	defer late.Close()
	same(number(next(late)), 0)
	return "a message that is refused three times goes to the topic of dead letters, where the initial subscription keeps it"
}

func unsubscribe(k *kit) string {
	there := topic("unsubscribe")
	k.publishTo(there, 0, 10)
	names := path(there) + "/subscriptions"
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	must(consumer.AckCumulative(receive(consumer, 10)[9]))
	same(k.ask("GET", names, ""), `["s"]`)
	must(consumer.Unsubscribe())
	consumer.Close()
	same(k.ask("GET", names, ""), "[]")
	consumer = k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	same(numbers(receive(consumer, 10)), numbersTo(0, 10))
	return "the subscription is gone from the admin API; a new one of its name begins anew"
}

func nonDurable(k *kit) string {
	there := topic("non-durable")
	k.publishTo(there, 0, 10)
	for range 2 {
		consumer := k.subscribe(there, "n", pulsar.ConsumerOptions{SubscriptionMode: pulsar.NonDurable})
		must(consumer.AckCumulative(receive(consumer, 10)[9]))
		consumer.Close()
	}
	same(k.ask("GET", path(there)+"/subscriptions", ""), `[]`)
	return "from the earliest message, each time; nothing of the subscription stays"
}
