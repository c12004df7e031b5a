package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	partitions    = 3
	partitionKeys = 11
	spread        = 900
)

// Many topics: partitions, patterns, lookups over HTTP.
var topics = []witnessCase{
	{"partitions", onPartitions},
	{"pattern", pattern},
	{"lookups over HTTP", overHTTP},
}

func onPartitions(k *kit) string {
	there := topic("partitions")
	k.ask("PUT", path(there)+"/partitions", strconv.Itoa(partitions))
	names, err := k.TopicPartitions(there)
	must(err)
	same(len(names), partitions)
	consumer := k.subscribe(there, "s", pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := k.producer(there, pulsar.ProducerOptions{})
	defer producer.Close()
	for each := range spread {
		message := &pulsar.ProducerMessage{Payload: payload(each), Key: fmt.Sprint("key-", each%partitionKeys)}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			check(err == nil, "a message was refused: %v", err)
		})
	}
	must(producer.Flush())
	homes, order, used := map[string]string{}, map[string]int{}, map[string]bool{}
	for _, message := range receive(consumer, spread) {
		home, known := homes[message.Key()]
		check(!known || home == message.Topic(), "%s is on two partitions", message.Key())
		homes[message.Key()] = message.Topic()
		used[message.Topic()] = true
		inOrder(order, message.Key(), number(message), partitionKeys)
		ack(consumer, message)
	}
	check(len(used) > 1, "all keys are on one partition")
	ids, err := consumer.GetLastMessageIDs()
	must(err)
	same(len(ids), partitions)
	return fmt.Sprintf("%d keys on %d of %d partitions, each in order", partitionKeys, len(used), partitions)
}

func pattern(k *kit) string {
	for _, name := range []string{"pattern-a", "pattern-b", "other"} {
		k.publishTo(topic(name), 0, 10)
	}
	consumer := k.subscribe("", "pattern", pulsar.ConsumerOptions{
		TopicsPattern: topic("pattern-.*"), AutoDiscoveryPeriod: time.Second,
	})
	defer consumer.Close()
	seen := map[string]bool{}
	for _, message := range receive(consumer, 20) {
		seen[message.Topic()] = true
		ack(consumer, message)
	}
	same(seen, map[string]bool{topic("pattern-a"): true, topic("pattern-b"): true})
	k.publishTo(topic("pattern-late"), 0, 10)
	for _, message := range receive(consumer, 10) {
		same(message.Topic(), topic("pattern-late"))
	}
	return "two topics of three, and one that was created later"
}

func overHTTP(k *kit) string {
	there := topic("over-http")
	k.ask("PUT", path(there)+"/partitions", strconv.Itoa(partitions))
	client := newClient(k.admin)
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{TopicsPattern: there + ".*", SubscriptionName: "s"})
	must(err)
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: there})
	must(err)
	publish(producer, 0, 30)
	same(sorted(numbers(receive(consumer, 30))), numbersTo(0, 30))
	return "a producer on partitions and a pattern, with an http:// service URL"
}
